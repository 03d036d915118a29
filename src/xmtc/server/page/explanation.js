// Views of an explanation by kind of evidence: tokens, path through a tree, neighbours, groups, members.

import { counted, make, percent, signed, words } from "./dom.js";
import { look, shaded } from "./shading.js";

const MOST_ROWS = 20;

/** The view of an explanation, as nodes. */
export function explained(found, text) {
  const parts = VIEWS[found.kind]?.(found, found.text ?? text) ?? [];
  if (!found.evidence.length && !found.constant) parts.push(faint("The model provides no evidence for this label."));
  if (found.kind !== "path" && found.path?.length > 1) {
    parts.push(heading("Path through the label tree with the highest probability"), path(found.path));
  }
  if (found.features?.length) parts.push(...features(found));
  return parts;
}

const VIEWS = {
  tokens: (found, text) => [
    ...(text.trim() ? shaded(text, found.evidence, found.shares) : [faint("The text is empty.")]),
    ...strongest(found),
  ],
  path: (found) => [heading("Path through the label tree"), path(found.evidence)],
  neighbours: (found) => [
    heading("Nearest training documents"),
    ...(found.constant
      ? [faint(`${found.constant.toFixed(4)} of the score comes from the label itself, the rest from the vote.`)]
      : []),
    make("ol", { class: "neighbours" }, ...found.evidence.map(neighbour)),
  ],
  groups: (found) => groups(found),
  members: (found) => [
    heading("Ensemble members"),
    table(["score", "", "model", "weight"], found.evidence.map((member) => [
      number(member.score.toFixed(4)),
      bar(member.share, Math.max(...found.evidence.map((other) => other.share))),
      words("td", member.model),
      number(percent(member.share)),
    ])),
  ],
};

const heading = (text) => make("h3", {}, text);
const faint = (text) => make("p", { class: "faint small" }, text);
const number = (text) => make("td", { class: "number" }, text);

/** A table cell with a bar proportional to the weight, coloured by its sign. */
function bar(weight, peak) {
  const drawn = make("i", { class: look(weight > 0 ? 4 : -4) });
  drawn.style.width = `${peak ? (100 * Math.abs(weight)) / peak : 0}%`;
  return make("td", { class: "bar" }, drawn);
}

/** A table with a header; numeric columns are right-aligned. */
function table(header, rows) {
  const looks = (rows[0] ?? []).map((cell) => cell.className || null);
  const head = header.map((name, at) => (name ? make("th", { scope: "col", class: looks[at] }, name) : make("td")));
  const body = make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells)));
  return make("table", {}, make("thead", {}, make("tr", {}, ...head)), body);
}

function strongest(found) {
  const tokens = [...found.evidence].sort(
    (left, right) => Math.abs(right.weight) - Math.abs(left.weight) || left.start - right.start,
  );
  if (!tokens.length && !found.constant) return [];
  const peak = Math.abs(tokens[0]?.weight ?? 0);
  const rows = tokens.slice(0, MOST_ROWS).map((token) => [
    number(signed(token.weight)),
    bar(token.weight, peak),
    words("td", token.text),
    make("td", { class: "number faint place" }, `${token.start}–${token.end}`),
  ]);
  for (const [weight, what] of [[found.text_vector, "vector of the whole text"], [found.constant, "intercept"]]) {
    if (!weight) continue;
    const place = make("td", { class: "number place" });
    rows.unshift([number(signed(weight)), make("td", { class: "bar" }), make("td", { class: "faint" }, what), place]);
  }
  const more = tokens.length - MOST_ROWS;
  return [
    heading(found.shares ? "Attention by word" : "Most influential words"),
    table([found.shares ? "attention" : "weight", "", "words", "characters"], rows),
    ...(more > 0 ? [faint(`… and ${counted(more)} more`)] : []),
  ];
}

function path(steps) {
  return make("ol", { class: "path" }, ...steps.map((step) => {
    const line = make("i", { class: look(4) });
    line.style.width = `${100 * Math.min(Math.max(step.probability, 0), 1)}%`;
    return make("li", {},
      make("span", { class: "figure" }, step.probability.toFixed(4)),
      make("span", { class: "bar" }, line),
      words("span", step.labels.join(", "), { class: "below" }));
  }));
}

function neighbour(near) {
  const facts = make("p", { class: "facts small" },
    make("span", { class: near.holds ? "holds" : "faint" }, near.holds ? "has the label" : "does not have the label"),
    make("span", {}, `similarity ${near.similarity.toFixed(4)}`),
    near.holds ? make("span", {}, `${percent(near.share)} of the vote`) : null,
    words("span", near.id, { class: "faint" }));
  return make("li", { class: near.holds ? "held" : null }, facts,
    words("p", /[\p{L}\p{N}]$/u.test(near.snippet) ? `${near.snippet}…` : near.snippet),
    words("p", near.labels.join(" · "), { class: "faint small" }));
}

/** Aspects of the text, then related labels, with bars on a common scale. */
function groups(found) {
  const peak = Math.max(0, ...found.evidence.map((item) => Math.abs(item.weight)));
  const parts = [];
  for (const [title, what] of [["Aspects of the text", "aspect"], ["Related labels", "label"]]) {
    const items = found.evidence.filter((item) => what in item);
    if (!items.length) continue;
    parts.push(heading(title), table(["contribution", "", what, "attention"], items.map((item) => [
      number(signed(item.weight)),
      bar(item.weight, peak),
      words("td", String(item[what])),
      number(`${(100 * item.attention).toFixed(1)} %`),
    ])));
  }
  return [...parts, faint("Contribution: how much the score before the sigmoid (logit) drops without it.")];
}

/** Features of a matched name: contribution to the score, and value. */
function features(found) {
  const peak = Math.max(...found.features.map((item) => Math.abs(item.weight)));
  const rows = found.features.map((item) => [
    number(signed(item.weight)),
    bar(item.weight, peak),
    make("td", {}, item.feature),
    number(item.value === null ? "–" : item.meaning || String(Number(item.value.toPrecision(4)))),
  ]);
  return [
    heading("Features of the match"),
    ...(found.evidence.length ? [] : [faint("No word of the text matches a name of the label.")]),
    table(["contribution", "", "feature", "value"], rows),
    faint("The same score before the sigmoid (logit); – means that the feature does not apply."),
  ];
}
