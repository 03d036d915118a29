// Accepted and rejected labels of a text. A decision belongs to the text, regardless of the model.

/** A tagged text: its rankings (one or two), the decisions, and those the service has saved. */
export const entryOf = (text) => ({
  text,
  many: "10",
  results: [], // {model, labels: [{key, name, score}], known_words: false if the text has no known word}
  decisions: new Map(), // key → {key, name, verdict: "accepted" | "rejected" | null, added}
  explanations: new Map(),
  kept: null, // the decisions as they were last sent
});

export const verdict = (entry, key) => entry.decisions.get(key)?.verdict ?? null;

/** Accept or reject a label; the same decision again undoes it. */
export function decide(entry, { key, name }, given) {
  const before = entry.decisions.get(key) ?? { key, name, verdict: null, added: false };
  entry.decisions.set(key, { ...before, verdict: before.verdict === given ? null : given });
}

/** Accept a label found by the search. */
export function add(entry, { key, name, broader, description, notes, documents }) {
  const details = { broader, description, notes, documents };
  entry.decisions.set(key, { key, name, ...details, verdict: "accepted", added: true });
}

/** Labels with a decision that are in no ranking: added manually, or from an earlier, longer ranking. */
export function others(entry) {
  const shown = new Set(entry.results.flatMap((result) => result.labels.map((label) => label.key)));
  return [...entry.decisions.values()].filter((label) => (label.added || label.verdict) && !shown.has(label.key));
}

/** Labels with this verdict, in the order of their first decision. */
export const having = (entry, given) => [...entry.decisions.values()].filter((label) => label.verdict === given);

const keysOf = (entry, given) => having(entry, given).map((label) => label.key);

/** The decisions as sent to the service, without the text. */
export const decided = (entry) => ({ accepted: keysOf(entry, "accepted"), rejected: keysOf(entry, "rejected") });

const sign = (entry) => {
  const { accepted, rejected } = decided(entry);
  return accepted.length || rejected.length ? JSON.stringify([[...accepted].sort(), [...rejected].sort()]) : null;
};

export const isDecided = (entry) => sign(entry) !== null;
export const isKept = (entry) => entry.kept !== null && entry.kept === sign(entry);
export const isUnsent = (entry) => sign(entry) !== entry.kept;

/** Returns a function that marks the current decisions as saved; later ones are not included. */
export const mark = (entry) => {
  const sent = sign(entry);
  return () => {
    entry.kept = sent;
  };
};

/** One line of JSON per text with decisions, oldest first, as in `xmtc feedback export`. */
export function lines(entries) {
  return entries
    .filter(isDecided)
    .map((entry) => {
      const { accepted, rejected } = decided(entry);
      return `${JSON.stringify({ text: entry.text, labels: accepted, rejected, complete: false })}\n`;
    })
    .join("");
}
