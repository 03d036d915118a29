// The small form that asks for an API key.

import { byId } from "./dom.js";

/** The key that was given, or null; `wrong` says that one was tried and refused. */
export function askForKey(wrong) {
  const dialog = byId("unlock");
  const field = byId("secret");
  const note = byId("unlock-wrong");
  note.hidden = !wrong;
  note.textContent = wrong ? "That key was not accepted." : "";
  field.value = "";
  return new Promise((resolve) => {
    const form = dialog.querySelector("form");
    let given = null;
    const submitted = (event) => {
      event.preventDefault();
      given = field.value.trim() || null;
      dialog.close();
    };
    const closed = () => {
      form.removeEventListener("submit", submitted);
      resolve(given);
    };
    form.addEventListener("submit", submitted);
    dialog.addEventListener("close", closed, { once: true });
    dialog.showModal();
    field.focus();
  });
}
