// The explanation of a label: in place of the text on a wide screen, below the label on a narrow one.

import * as api from "./api.js";
import { byId, make, score, visible } from "./dom.js";
import { explained } from "./explanation.js";
import { modelNamed } from "./models.js";
import { complain } from "./status.js";

const FOLLOW = 150; // milliseconds on a label before an open explanation switches to it
const wide = matchMedia("(min-width: 56rem)");
const view = byId("why");

let open = null; // {entry, row}
let question = 0;
let timer = null;
let patience = null;

wide.addEventListener("change", place);

export const isOpen = () => open !== null;
export const shows = (row) => open?.row === row;

/** Show the explanation of a row's label, or close it if it is open. */
export async function show(entry, row) {
  if (shows(row)) return close();
  set(entry, row);
  question += 1;
  const mine = question;
  const { text } = entry;
  const kept = `${row.model}\n${row.key}`;
  try {
    if (!entry.explanations.has(kept)) {
      wait(mine);
      entry.explanations.set(kept, await api.explain(text, row.key, row.model));
    }
    if (mine === question) fill(entry.explanations.get(kept), row, text);
  } catch (problem) {
    if (mine !== question) return undefined;
    fact(row, null);
    if (problem.passing) {
      close();
      complain(problem, () => show(entry, row));
    } else {
      body(make("p", { class: "note" }, problem.message));
    }
  }
  return undefined;
}

/** On a wide screen, an open explanation follows the current row. */
export function follow(entry, row) {
  clearTimeout(timer);
  if (open && wide.matches && !shows(row)) timer = setTimeout(() => open && !shows(row) && show(entry, row), FOLLOW);
}

export function close() {
  question += 1;
  clearTimeout(timer);
  open?.row.label.setAttribute("aria-expanded", "false");
  open?.row.item.classList.remove("open");
  open = null;
  view.removeAttribute("aria-busy");
  place();
}

function set(entry, row) {
  open?.row.label.setAttribute("aria-expanded", "false");
  open?.row.item.classList.remove("open");
  open = { entry, row };
  row.label.setAttribute("aria-expanded", "true");
  row.item.classList.add("open");
  byId("why-name").textContent = visible(row.name);
  place();
}

function place() {
  view.hidden = open === null;
  byId("reading").classList.toggle("explaining", open !== null && wide.matches);
  if (open === null) document.body.append(view);
  else if (wide.matches) byId("editor").after(view);
  else open.row.item.append(view);
  byId("why-close").firstChild.textContent = wide.matches ? "Back to text" : "Close";
}

/** Mark the view as busy; if the response takes longer than a moment, fade the old explanation and show a message. */
function wait(mine) {
  clearTimeout(patience);
  view.setAttribute("aria-busy", "true");
  patience = setTimeout(() => {
    if (mine !== question || !open) return;
    byId("why-facts").textContent = "Loading explanation…";
    byId("why-body").classList.add("old");
  }, 150);
}

function body(...parts) {
  clearTimeout(patience);
  view.removeAttribute("aria-busy");
  byId("why-body").classList.remove("old");
  byId("why-body").replaceChildren(...parts);
}

function fact(row, found) {
  const calibrated = modelNamed(row.model)?.calibrated ?? false;
  const figure = found ? `${calibrated ? "probability" : "score"} ${score(found.label.score, calibrated)} · ` : "";
  byId("why-facts").textContent = `${figure}model ${row.model}`;
}

/** Show the evidence; a long text is scrolled to its strongest word. */
function fill(found, row, text) {
  fact(row, found);
  body(...explained(found.explanation, text));
  const box = view.querySelector(".shaded");
  const strong = box?.querySelector(".for5, .against5");
  if (strong) box.scrollTop = Math.max(0, strong.offsetTop - box.offsetTop - box.clientHeight / 3);
  view.scrollTop = 0;
  if (!wide.matches) row.item.scrollIntoView({ block: "start" });
}
