// Entry point of the page: a text on one side, its labels and the feedback on them on the other.

import * as api from "./api.js";
import * as colours from "./colours.js";
import * as decisions from "./decisions.js";
import { byId, counted, plural } from "./dom.js";
import * as keys from "./keys.js";
import * as models from "./models.js";
import * as ranking from "./ranking.js";
import { complain, say, settle } from "./status.js";
import * as search from "./search.js";
import * as text from "./text.js";
import * as visit from "./visit.js";
import * as why from "./why.js";

let entry = null; // the text whose labels are shown
let asked = null; // the request in progress; pressing Tag again does not repeat it
let question = 0;
let sending = false;

// ---- tagging

/** Tag the text in the field. */
function tag() {
  const typed = text.value();
  if (!typed.trim()) {
    say("Enter a text first.");
    showText();
    text.focus();
    return;
  }
  if (text.tooLong()) {
    complain(new Error(`The text is too long: the limit is ${counted(models.limits.characters)} characters.`));
    return;
  }
  if (!models.chosen().length) begin();
  else ask(visit.known(typed) ?? decisions.entryOf(typed));
}

async function ask(wanted) {
  const names = models.chosen();
  const many = names.map(models.wanted);
  const signature = JSON.stringify([wanted.text, names, many]);
  if (asked === signature) return;
  asked = signature;
  question += 1;
  const mine = question;
  settle();
  const done = atWork();
  try {
    const most = models.limits.k;
    const rankings = await Promise.all(names.map((name, at) => api.predict(wanted.text, name, many[at], most)));
    if (mine !== question) return;
    wanted.results = names.map((model, at) => ({ model, ...rankings[at] }));
    wanted.many = many[0];
    visit.remember(wanted);
    present(wanted, true);
  } catch (problem) {
    if (mine !== question) return;
    say("");
    complain(problem, () => ask(wanted));
  } finally {
    if (mine === question) asked = null;
    done();
  }
}

/** Shows that a request is in progress, once it takes longer than a moment, and for how long. */
let working = 0;
function atWork() {
  working += 1;
  const since = Date.now();
  const ticking = setInterval(() => {
    const seconds = Math.round((Date.now() - since) / 1000);
    document.body.classList.add("working");
    byId("tag").firstChild.data = "Tagging… ";
    if (seconds >= 3 && seconds % 5 === 3) say(`Still working after ${seconds} s…`);
  }, 250);
  return () => {
    clearInterval(ticking);
    working -= 1;
    if (working) return;
    document.body.classList.remove("working");
    byId("tag").firstChild.data = "Tag ";
  };
}

// ---- showing

function present(shown, fresh = false) {
  const same = entry === shown;
  const focused = document.activeElement;
  const idle = focused === null || focused === document.body || focused.closest("#editor, #texts, .row") !== null;
  why.close();
  entry = shown;
  if (!same) ranking.clear();
  ranking.draw(entry);
  byId("invitation").hidden = true;
  byId("find").hidden = false;
  byId("deciding").hidden = false;
  refresh();
  compareText();
  if (fresh) {
    say(`${entry.results.map((result) => plural(result.labels.length, "label")).join(" and ")}.`);
  }
  if (idle) ranking.go();
  if (fresh && !matchMedia("(min-width: 56rem)").matches) byId("answer").scrollIntoView();
}

function refresh() {
  ranking.refresh(entry);
  const { accepted, rejected } = decisions.decided(entry);
  const taker = models.taker(entry.results.map((result) => result.model));
  const parts = [`${accepted.length} accepted`, `${rejected.length} rejected`];
  if (decisions.isKept(entry)) parts.push("saved");
  else if (!taker) parts.push("this service does not store feedback");
  else if (entry.results.length > 1) parts.push(`feedback for ${taker}`);
  byId("decided").textContent = parts.join(" · ");
  byId("send").setAttribute("aria-disabled", String(!taker || !decisions.isUnsent(entry)));
  visit.draw(entry);
}

/** Show whether the text has changed since the labels were predicted. */
function compareText() {
  const changed = entry !== null && text.value() !== entry.text;
  byId("stale").hidden = !changed || !text.value().trim();
  byId("rankings").classList.toggle("old", changed);
}

function showText() {
  if (why.isOpen()) why.close();
}

/** Restore a text from the history, with its labels and decisions. */
function bring(back) {
  question += 1; // ignore the response to a pending request
  asked = null;
  text.put(back.text);
  models.choose(back.results.map((result) => result.model));
  const many = document.querySelector(`#many input[value="${back.many}"]`);
  if (many) many.checked = true;
  say("");
  present(back);
}

/** An empty page for the next text; the previous one stays in the history. */
function fresh() {
  question += 1;
  asked = null;
  showText();
  entry = null;
  ranking.clear();
  byId("invitation").hidden = false;
  byId("find").hidden = true;
  byId("deciding").hidden = true;
  say("");
  visit.draw(null);
  text.put("");
  text.focus();
}

// ---- deciding

function decide(row, verdict) {
  decisions.decide(entry, row, verdict);
  const now = decisions.verdict(entry, row.key);
  refresh();
  say(now ? `${now === "accepted" ? "Accepted" : "Rejected"}: ${row.name}` : `Undone: ${row.name}`);
}

function add(label) {
  decisions.add(entry, label);
  refresh();
  say(`Accepted: ${label.name}`);
}

async function send() {
  if (!entry || sending) return;
  const { accepted, rejected } = decisions.decided(entry);
  const taker = models.taker(entry.results.map((result) => result.model));
  if (!decisions.isUnsent(entry)) {
    if (decisions.isKept(entry)) say("Already saved: nothing has changed since.");
    else say("Nothing to save: accept or reject a label first.");
    return;
  }
  if (!taker) {
    say("This service does not store feedback. Download it instead.");
    return;
  }
  const kept = decisions.mark(entry);
  sending = true;
  settle();
  try {
    await api.keep(entry.text, accepted, rejected, taker);
    kept();
    say(`Saved: ${accepted.length} accepted, ${rejected.length} rejected`);
  } catch (problem) {
    complain(problem, send);
  } finally {
    sending = false;
    refresh();
  }
}

// ---- start

function wire() {
  colours.listen();
  ranking.listen({
    why: (row) => why.show(entry, row),
    decide,
    moved: (row) => why.follow(entry, row),
    gone: (row) => why.shows(row) && why.close(),
  });
  search.listen({
    add,
    leave: () => ranking.go(),
    verdict: (key) => (entry ? decisions.verdict(entry, key) : null),
  });
  visit.listen(bring);
  text.listen({ changed: compareText, isSafe: (typed) => visit.known(typed) !== null, shown: showText });
  const current = (act) => () => ranking.currentRow() && act(ranking.currentRow());
  keys.listen({
    tag,
    leave,
    j: () => ranking.move(1),
    k: () => ranking.move(-1),
    h: () => ranking.across(0),
    l: () => ranking.across(1),
    ArrowDown: () => ranking.move(1),
    ArrowUp: () => ranking.move(-1),
    ArrowLeft: () => ranking.across(0),
    ArrowRight: () => ranking.across(1),
    a: current((row) => decide(row, "accepted")),
    r: current((row) => decide(row, "rejected")),
    "/": () => entry && byId("search").focus(),
    s: send,
    n: fresh,
  });
  byId("tag").addEventListener("click", tag);
  byId("again").addEventListener("click", tag);
  byId("new").addEventListener("click", fresh);
  byId("send").addEventListener("click", send);
  byId("why-close").addEventListener("click", () => leave(byId("why")));
  byId("many").addEventListener("change", () => entry && ask(entry));
}

/** Escape: close the explanation, or move the focus from the text to its labels. */
function leave(target) {
  if (why.isOpen()) {
    const back = target.closest("#why, .row") !== null;
    why.close();
    if (back) ranking.go();
  } else if (target.closest("#editor") && entry) {
    ranking.go();
  }
}

async function begin() {
  try {
    models.offer(await api.served(), () => entry && ask(entry));
    text.changed();
  } catch (problem) {
    complain(problem, begin);
  }
}

wire();
begin();
