// A text shaded by the weight of its evidence, with the rules of `xmtc explain --html`: weights of overlapping evidence
// are added, and strength is relative to the strongest stretch, in five steps.

import { make, signed, visible } from "./dom.js";

export const STEPS = 5;
const WHOLE = 60_000; // texts up to this many characters are shown completely
const PLACES = 150; // number of stretches shown of a longer text, strongest first
const AROUND = 250; // characters shown before and after each

/** Split the text wherever evidence begins or ends, in order, without gaps; positions are in code points. */
export function stretches(tokens, size) {
  const begins = new Map();
  const cuts = new Set([0, size]);
  for (const token of tokens) {
    if (token.start >= Math.min(token.end, size)) continue;
    const start = Math.max(token.start, 0);
    if (!begins.has(start)) begins.set(start, []);
    begins.get(start).push(token);
    cuts.add(start);
    cuts.add(Math.min(token.end, size));
  }
  const places = [...cuts].sort((left, right) => left - right);
  const cut = [];
  let open = [];
  for (let at = 0; at + 1 < places.length; at += 1) {
    const [start, end] = [places[at], places[at + 1]];
    open = [...open.filter((token) => token.end > start), ...(begins.get(start) ?? [])];
    cut.push({ start, end, parts: open, weight: open.reduce((sum, token) => sum + token.weight, 0) });
  }
  return cut;
}

/** Levels from −5 (strongest evidence against the label) over 0 (unshaded) to 5 (strongest evidence for it). */
export function levels(cut) {
  const peak = cut.reduce((most, { weight }) => Math.max(most, Math.abs(weight)), 0);
  return cut.map(({ weight }) => (peak ? Math.sign(weight) * Math.floor((STEPS * Math.abs(weight)) / peak + 0.5) : 0));
}

export const look = (level) => `${level > 0 ? "for" : "against"}${Math.abs(level)}`;

/** The shaded text and its legend. */
export function shaded(text, tokens, shares) {
  const points = Array.from(text);
  const cut = stretches(tokens, points.length);
  const shades = levels(cut);
  const said = { tabindex: "0", role: "group", "aria-label": "Text with shaded words" };
  const box = make("div", { class: "shaded", lang: "", dir: "auto", ...said });
  const kept = windows(cut, points.length);
  let at = 0;
  for (const [from, to] of kept) {
    if (from > 0) box.append(" … ");
    while (cut[at].end <= from) at += 1;
    for (; at < cut.length && cut[at].start < to; at += 1) {
      const { parts, weight } = cut[at];
      const shown = visible(points.slice(Math.max(cut[at].start, from), Math.min(cut[at].end, to)).join(""));
      if (!parts.length) box.append(shown);
      else box.append(make("mark", { class: shades[at] ? look(shades[at]) : null, title: tip(parts, weight) }, shown));
      if (cut[at].end > to) break;
    }
  }
  const whole = kept.length === 1 && kept[0][1] - kept[0][0] === points.length;
  const note = make("p", { class: "faint small" }, "Long text: only the passages around its most influential words are shown.");
  return [...(whole ? [] : [note]), box, ...legend(shades, shares)];
}

/** The ranges to show: the complete text, or the passages around the strongest stretches of a long one, in order. */
function windows(cut, size) {
  if (size <= WHOLE) return [[0, size]];
  const strong = cut
    .filter(({ weight }) => weight)
    .sort((left, right) => Math.abs(right.weight) - Math.abs(left.weight))
    .slice(0, PLACES)
    .sort((left, right) => left.start - right.start);
  const joined = [];
  for (const stretch of strong) {
    const [start, end] = [Math.max(stretch.start - AROUND, 0), Math.min(stretch.end + AROUND, size)];
    const last = joined.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else joined.push([start, end]);
  }
  return joined.length ? joined : [[0, 2 * AROUND]];
}

/** Tooltip with the weight and, if several pieces of evidence overlap, its parts. */
function tip(parts, weight) {
  if (parts.length === 1) return signed(weight);
  const ordered = [...parts].sort((left, right) => left.end - left.start - (right.end - right.start));
  return `${signed(weight)} = ${ordered.map((part) => `${visible(part.text)} ${signed(part.weight)}`).join(", ")}`;
}

function legend(shades, shares) {
  const sides = [];
  if (shades.some((level) => level > 0)) sides.push([1, shares ? "attention" : "evidence for the label"]);
  if (shades.some((level) => level < 0)) sides.push([-1, "evidence against it"]);
  if (!sides.length) return [];
  const [weak, strong] = shares ? ["low", "high"] : ["weak", "strong"];
  const told = sides.map(([sign, meaning]) => {
    const ramp = Array.from({ length: STEPS }, (_, step) => make("mark", { class: look(sign * (step + 1)) }));
    return make("span", {}, `${meaning}: ${weak} `, make("b", { "aria-hidden": "true" }, ...ramp), ` ${strong}`);
  });
  return [make("p", { class: "legend faint small" }, ...told)];
}
