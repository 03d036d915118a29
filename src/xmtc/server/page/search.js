// Search for a label to add: a combobox with matches from the service; only the newest response counts.

import * as api from "./api.js";
import * as details from "./details.js";
import { byId, counted, make, words } from "./dom.js";
import { chosen } from "./models.js";
import { complain } from "./status.js";

const PAUSE = 120; // milliseconds without input before a request
const NOTHING = "No label matches";
const field = byId("search");
const list = byId("suggestions");

let found = [];
let active = -1;
let question = 0; // responses to older requests are ignored
let timer = null;
let handlers = { add: () => {}, leave: () => {}, verdict: () => null };

export function listen(given) {
  handlers = given;
  field.addEventListener("input", () => {
    activate(-1); // Enter must not add a match of an older request
    soon();
  });
  field.addEventListener("focus", soon);
  field.addEventListener("blur", close);
  field.addEventListener("keydown", pressed);
  list.addEventListener("mousedown", (event) => event.preventDefault()); // the focus stays in the field
  list.addEventListener("click", (event) => {
    const at = [...list.children].indexOf(event.target.closest("[role=option]"));
    if (at >= 0) add(found[at]);
  });
}

function soon() {
  clearTimeout(timer);
  timer = setTimeout(ask, PAUSE);
}

async function ask() {
  question += 1;
  const mine = question;
  const typed = field.value.trim();
  try {
    const answer = await api.search(typed, chosen()[0]);
    if (mine !== question || document.activeElement !== field) return;
    show(answer, typed);
  } catch (problem) {
    if (mine === question) complain(problem, ask);
  }
}

function show(answer, typed) {
  found = answer.labels;
  list.replaceChildren(...found.map((label, at) => {
    const given = handlers.verdict(label.key);
    return make("li", { role: "option", id: `option-${at}`, "aria-selected": "false" },
      make("span", { class: "name" }, words("span", label.name),
        label.alternative ? words("span", ` (${label.alternative})`, { class: "faint" }) : null, details.line(label)),
      given ? make("span", { class: "small" }, given) : null,
      make("span", { class: "figure faint small", title: "training documents" }, counted(label.documents)));
  }));
  list.hidden = found.length === 0;
  field.setAttribute("aria-expanded", String(!list.hidden));
  activate(found.length && typed ? 0 : -1);
  const count = answer.more ? `More than ${found.length}` : counted(found.length);
  byId("found").textContent = found.length ? `${count} ${found.length === 1 ? "label" : "labels"}` : NOTHING;
  if (!found.length) {
    list.hidden = false;
    const nothing = { role: "option", "aria-disabled": "true", "aria-selected": "false", class: "faint" };
    list.replaceChildren(make("li", nothing, NOTHING));
  }
}

function activate(at) {
  list.children[active]?.setAttribute("aria-selected", "false");
  active = at;
  const option = list.children[at];
  if (!option) return field.removeAttribute("aria-activedescendant");
  option.setAttribute("aria-selected", "true");
  option.scrollIntoView({ block: "nearest" });
  return field.setAttribute("aria-activedescendant", option.id);
}

function pressed(event) {
  if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    event.preventDefault();
    field.value = "";
    close();
    handlers.leave();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    if (!found.length) return;
    const step = event.key === "ArrowDown" ? 1 : -1;
    activate((active + step + found.length + (active < 0 && step < 0 ? 1 : 0)) % found.length);
  } else if (event.key === "Enter") {
    event.preventDefault();
    if (found[active] && !list.hidden) add(found[active]);
  }
}

/** Accept the label and clear the field for another search. */
function add(label) {
  field.value = "";
  close();
  handlers.add(label);
}

function close() {
  clearTimeout(timer);
  question += 1;
  found = [];
  list.hidden = true;
  list.replaceChildren();
  field.setAttribute("aria-expanded", "false");
  activate(-1);
  byId("found").textContent = "";
}
