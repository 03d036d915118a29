// The switch between system, light and dark colours. The choice is stored; theme.js reads it before the first paint.

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
      // Without storage, the choice is kept until the page is closed.
    }
    show();
  });
}

const chosen = () => document.documentElement.dataset.theme ?? "system";

function show() {
  byId("theme").textContent = `Theme: ${chosen()}`;
}
