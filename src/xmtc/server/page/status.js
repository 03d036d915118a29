// Status messages, and problems, which stay until they are dismissed or solved.

import { byId, make } from "./dom.js";

/** Show a short message in the status line, optionally with a button. */
export function say(text, action = null, then = null) {
  const line = byId("said");
  line.replaceChildren(text);
  if (action) line.append(" ", make("button", { type: "button", class: "quiet", onclick: then }, action));
}

/** Show a problem; `again` is the action of the button "Try again". */
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

/** Hide the problem. */
export const settle = () => byId("problem").replaceChildren();
