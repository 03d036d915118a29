// Runs before the first paint, so that the stored colour scheme applies without a flash.
"use strict";
(() => {
  try {
    const kept = localStorage.getItem("xmtc-theme");
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch {
    // Without storage, the system's colour scheme applies.
  }
})();
