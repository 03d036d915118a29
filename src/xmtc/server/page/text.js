// The text field: character count, drag and drop, opening files, pasting anywhere on the page.

import { byId, characters, counted, plural } from "./dom.js";
import { limits } from "./models.js";
import { complain, say, settle } from "./status.js";

const field = byId("text");
let handlers = { changed: () => {}, isSafe: () => true, shown: () => {} };

export const value = () => field.value;
export const focus = () => field.focus();

/** Whether the text exceeds the limit of the service. */
export const tooLong = () => characters(field.value) > limits.characters;

export function listen(given) {
  handlers = given;
  field.addEventListener("input", changed);
  byId("choose").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", (event) => {
    if (event.target.files.length) take(event.target.files);
    event.target.value = "";
  });
  document.addEventListener("paste", pasted);
  dropping();
  changed();
}

/** Put a text into the field. A replaced text that was never tagged can be restored. */
export function put(text, quietly = false) {
  const before = field.value;
  const lost = before.trim() && before !== text && !handlers.isSafe(before);
  field.value = text;
  field.setSelectionRange(0, 0);
  field.scrollTop = 0;
  handlers.shown();
  changed();
  if (lost && !quietly) say("The text was replaced.", "Undo", () => put(before, true));
}

export function changed() {
  const size = characters(field.value);
  const over = size - limits.characters;
  const count = byId("count");
  count.classList.toggle("wrong", over > 0);
  const most = `${counted(limits.characters)} characters`;
  if (over > 0) count.textContent = `${counted(size)} of ${most}: ${counted(over)} too many`;
  else if (size > limits.characters / 2) count.textContent = `${counted(size)} of ${most}`;
  else count.textContent = size ? plural(size, "character") : `up to ${most}`;
  handlers.changed();
}

/** Pasting outside of input fields replaces the text. */
function pasted(event) {
  const target = event.target instanceof Element ? event.target : null;
  if (target?.closest("input, textarea, select, dialog")) return;
  const files = event.clipboardData?.files;
  const text = event.clipboardData?.getData("text/plain") ?? "";
  if (!text && !files?.length) return;
  event.preventDefault();
  if (text) put(text);
  else take(files);
  focus();
}

function dropping() {
  const kinds = ["Files", "text/plain"];
  const holds = (event) => kinds.some((kind) => event.dataTransfer?.types.includes(kind));
  let inside = 0;
  const over = (on) => {
    inside = on ? inside : 0;
    document.body.classList.toggle("dropping", on);
  };
  document.addEventListener("dragenter", (event) => {
    if (!holds(event)) return;
    inside += 1;
    over(true);
  });
  document.addEventListener("dragleave", () => {
    inside -= 1;
    if (inside <= 0) over(false);
  });
  document.addEventListener("dragover", (event) => holds(event) && event.preventDefault());
  document.addEventListener("drop", (event) => {
    over(false);
    if (!holds(event)) return;
    event.preventDefault();
    if (event.dataTransfer.files.length) take(event.dataTransfer.files);
    else put(event.dataTransfer.getData("text/plain"));
    focus();
  });
}

/** The text of the first file. */
async function take(files) {
  const [file] = files;
  settle();
  if (file.size > 4 * limits.characters) {
    const most = counted(limits.characters);
    complain(new Error(`${file.name} is too large (${counted(file.size)} bytes): the limit is ${most} characters.`));
    return;
  }
  let text;
  try {
    text = decoded(await file.arrayBuffer());
  } catch {
    complain(new Error(`${file.name} could not be read. Open it again, or paste its text.`));
    return;
  }
  if (text.includes("\0")) {
    complain(new Error(`${file.name} is not a text file. Open a plain text file, or paste the text.`));
    return;
  }
  put(text);
  if (files.length > 1) say(`Opened only ${file.name}, the first of ${files.length} files.`);
  focus();
}

/** Decode UTF-8, UTF-16 with a byte order mark, or else Windows-1252. */
function decoded(bytes) {
  const [first, second] = new Uint8Array(bytes.slice(0, 2));
  if (first === 0xff && second === 0xfe) return new TextDecoder("utf-16le").decode(bytes);
  if (first === 0xfe && second === 0xff) return new TextDecoder("utf-16be").decode(bytes);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}
