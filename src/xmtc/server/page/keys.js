// Keyboard shortcuts. They are inactive while typing, and never use Ctrl, Alt or Command, except Ctrl Enter.

import { byId } from "./dom.js";

const KEPT = "xmtc-single-keys";
const TYPING = "textarea, select, [contenteditable], input:not([type=radio], [type=checkbox])";

/** `actions` maps keys to functions; single-letter shortcuts can be disabled. */
export function listen(actions) {
  const single = byId("single");
  single.checked = stored() !== "off";
  single.addEventListener("change", () => store(single.checked ? "on" : "off"));
  byId("help").addEventListener("click", help);
  for (const button of document.querySelectorAll("dialog [data-close]")) {
    button.addEventListener("click", () => button.closest("dialog").close());
  }
  document.addEventListener("keydown", (event) => pressed(event, actions));
  if (/Mac|iPhone|iPad/.test(navigator.platform)) {
    for (const key of document.querySelectorAll("kbd")) key.textContent = key.textContent.replace("Ctrl ", "⌘ ");
  }
}

const help = () => byId("keys").showModal();

function pressed(event, actions) {
  if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
    event.preventDefault();
    actions.tag();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.target instanceof Element ? event.target : document.body;
  if (event.key === "Escape") {
    actions.leave(target);
    return;
  }
  if (target.closest(TYPING)) return;
  const act = event.key.startsWith("Arrow") ? inList(target, actions[event.key]) : letter(event, actions);
  if (!act) return;
  event.preventDefault();
  act();
}

/** Arrow keys move between labels only while a label has the focus; elsewhere they scroll. */
const inList = (target, act) => (target.closest(".row .line") ? act : null);

function letter(event, actions) {
  if (!byId("single").checked || (event.repeat && !"jk".includes(event.key))) return null;
  if (event.key === "?") return help;
  return event.key.length === 1 && Object.hasOwn(actions, event.key) ? actions[event.key] : null;
}

function stored() {
  try {
    return localStorage.getItem(KEPT);
  } catch {
    return null;
  }
}

function store(value) {
  try {
    localStorage.setItem(KEPT, value);
  } catch {
    // Without storage, the setting is kept until the page is closed.
  }
}
