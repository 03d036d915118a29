// Runs before anything is drawn, so that a remembered choice never flashes in the other colours.
"use strict";
(() => {
  try {
    const kept = localStorage.getItem("xmtc-theme");
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch {
    // Storage is forbidden: the system's colours hold.
  }
})();
