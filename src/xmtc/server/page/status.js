// What the page says: a word on what was done, and problems, which stay until they are dealt with.

import { byId, make } from "./dom.js";

/** A short word in the status line, perhaps with a button. */
export function say(text, action = null, then = null) {
  const line = byId("said");
  line.replaceChildren(text);
  if (action) line.append(" ", make("button", { type: "button", class: "quiet", onclick: then }, action));
}

/** Something went wrong; `again` is what to do when the person wants to try once more. */
export function complain(problem, again = null) {
  const text = make("p", {}, problem.message ?? String(problem));
  if (problem.wait) text.append(make("span", { class: "faint" }, ` Try again in ${problem.wait} s.`));
  const buttons = make("div", { class: "actions" });
  if (again && (problem.passing ?? true)) {
    const retry = () => {
      settle();
      again();
    };
    buttons.append(make("button", { type: "button", onclick: retry }, "Try again"));
  }
  buttons.append(make("button", { type: "button", class: "quiet", onclick: settle }, "Dismiss"));
  byId("problem").replaceChildren(text, buttons);
}

/** The problem is over. */
export const settle = () => byId("problem").replaceChildren();
