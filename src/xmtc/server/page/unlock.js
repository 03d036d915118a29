// The dialog that asks for an API key.

import { byId } from "./dom.js";

/** Resolves to the key, or to null if cancelled; `wrong` means that a key was tried and refused. */
export function askForKey(wrong) {
  const dialog = byId("unlock");
  const field = byId("secret");
  const note = byId("unlock-wrong");
  note.hidden = !wrong;
  note.textContent = wrong ? "Wrong API key." : "";
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
