// The switch between the system's colours, light and dark. What was chosen is remembered; theme.js reads it early.

import { byId } from "./dom.js";

const KEPT = "xmtc-theme";
const NEXT = { system: "light", light: "dark", dark: "system" };

export function listen() {
  show();
  byId("theme").addEventListener("click", () => {
    const next = NEXT[chosen()];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try {
      if (next === "system") localStorage.removeItem(KEPT);
      else localStorage.setItem(KEPT, next);
    } catch {
      // It holds for this visit, then.
    }
    show();
  });
}

const chosen = () => document.documentElement.dataset.theme ?? "system";

function show() {
  byId("theme").textContent = `Colours: ${chosen()}`;
}
