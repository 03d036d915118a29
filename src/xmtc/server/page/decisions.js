// What a person decided on a text, label by label. A decision belongs to the text, whichever model named the label.

/** A text that was tagged: its rankings (one or two), what was decided, and what of it the service has kept. */
export const entryOf = (text) => ({
  text,
  many: "10",
  results: [], // {model, labels: [{key, name, score}]}
  decisions: new Map(), // key → {key, name, verdict: "accepted" | "rejected" | null, added}
  explanations: new Map(),
  kept: null, // the decisions as they were last sent
});

export const verdict = (entry, key) => entry.decisions.get(key)?.verdict ?? null;

/** Accept or reject a label; the same again takes it back. */
export function decide(entry, { key, name }, given) {
  const before = entry.decisions.get(key) ?? { key, name, verdict: null, added: false };
  entry.decisions.set(key, { ...before, verdict: before.verdict === given ? null : given });
}

/** Accept a label that a person looked up. */
export function add(entry, { key, name }) {
  entry.decisions.set(key, { key, name, verdict: "accepted", added: true });
}

/** Labels with a decision that no ranking shows: those added by hand, and those of an earlier, longer ranking. */
export function others(entry) {
  const shown = new Set(entry.results.flatMap((result) => result.labels.map((label) => label.key)));
  return [...entry.decisions.values()].filter((label) => (label.added || label.verdict) && !shown.has(label.key));
}

/** Those with one verdict, in the order in which they were decided first. */
export const having = (entry, given) => [...entry.decisions.values()].filter((label) => label.verdict === given);

const keysOf = (entry, given) => having(entry, given).map((label) => label.key);

/** What the service is told, less the text. */
export const decided = (entry) => ({ accepted: keysOf(entry, "accepted"), rejected: keysOf(entry, "rejected") });

const sign = (entry) => {
  const { accepted, rejected } = decided(entry);
  return accepted.length || rejected.length ? JSON.stringify([[...accepted].sort(), [...rejected].sort()]) : null;
};

export const isDecided = (entry) => sign(entry) !== null;
export const isKept = (entry) => entry.kept !== null && entry.kept === sign(entry);
export const isUnsent = (entry) => sign(entry) !== entry.kept;

/** What was sent is kept by the service now; what was decided meanwhile is not. */
export const mark = (entry) => {
  const sent = sign(entry);
  return () => {
    entry.kept = sent;
  };
};

/** One line of JSON for each text with decisions, oldest first, as `xmtc feedback export` writes them. */
export function lines(entries) {
  return entries
    .filter(isDecided)
    .map((entry) => {
      const { accepted, rejected } = decided(entry);
      return `${JSON.stringify({ text: entry.text, labels: accepted, rejected })}\n`;
    })
    .join("");
}
