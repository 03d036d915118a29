// The HTTP API, one function per route. Errors are instances of Problem with the message of the service.

import { askForKey } from "./unlock.js";

const KEPT = "xmtc-key";

export class Problem extends Error {
  constructor(status, detail, wait = null) {
    super(detail);
    this.status = status;
    this.wait = wait; // seconds until a retry, if the service gave them
  }

  /** Whether a retry may succeed. */
  get passing() {
    return this.status === 0 || this.status === 401 || this.status === 408 || this.status === 429 || this.status >= 500;
  }
}

let key = remembered();
let asking = null; // one dialog for all requests that were refused at the same time

function remembered() {
  try {
    return sessionStorage.getItem(KEPT);
  } catch {
    return null;
  }
}

async function unlock(used) {
  if (key !== used) return; // another request has obtained a key meanwhile
  asking ??= askForKey(used !== null).finally(() => {
    asking = null;
  });
  const given = await asking;
  if (given === null) throw new Problem(401, "This service requires an API key.");
  key = given;
  try {
    sessionStorage.setItem(KEPT, given);
  } catch {
    // Without storage, the key is kept until the page is closed.
  }
}

async function ask(path, body) {
  for (;;) {
    const used = key;
    const headers = { Accept: "application/json" };
    if (used !== null) headers.Authorization = `Bearer ${used}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const answer = await fetched(path, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "omit",
    });
    if (answer.status !== 401) return read(answer);
    await unlock(used);
  }
}

async function fetched(path, options) {
  try {
    return await fetch(path, options);
  } catch {
    throw new Problem(0, "The service does not respond. Check that it is running.");
  }
}

async function read(answer) {
  let told = null;
  try {
    told = await answer.json();
  } catch {
    // Not JSON: probably the response of a proxy.
  }
  if (answer.ok && told !== null) return told;
  const detail = told?.detail ?? told?.title ?? `The service responded with status ${answer.status}.`;
  const wait = Number.parseInt(answer.headers.get("Retry-After") ?? "", 10);
  throw new Problem(answer.status, String(detail), Number.isNaN(wait) ? null : wait);
}

export const served = () => ask("/v1/models");

/** The ranking of one model, {labels, known_words}; `many` is a number, or "auto" for the tuned threshold. */
export async function predict(text, model, many, most) {
  const depth = many === "auto" ? { k: Math.min(100, most), threshold: "auto" } : { k: Math.min(Number(many), most) };
  const answer = await ask("/v1/predict", { texts: [text], model, details: true, ...depth });
  return answer.predictions[0];
}

export const explain = (text, label, model) => ask("/v1/explain", { text, label, model });

export function search(words, model, limit = 20) {
  return ask(`/v1/labels?${new URLSearchParams({ q: words, limit: String(limit), model })}`);
}

/** Save the decisions on a text; without any, withdraw the earlier ones. */
export function keep(text, accepted, rejected, model) {
  const withdraw = accepted.length + rejected.length === 0;
  return ask("/v1/feedback", withdraw ? { text, withdraw, model } : { text, accepted, rejected, model });
}
