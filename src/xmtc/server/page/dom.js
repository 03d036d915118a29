// Helpers for elements and numbers. External content is inserted as text, never as markup.

export const byId = (id) => document.getElementById(id);

/** Create an element with attributes (`on…` are listeners; false and null are omitted) and children (nodes or text). */
export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** An element with text of a user or a label: automatic direction, control characters made visible. */
export const words = (tag, text, attributes = {}) => make(tag, { lang: "", dir: "auto", ...attributes }, visible(text));

/** The text with a visible symbol for each unprintable character. */
export const visible = (text) => text.replace(/\r\n?/g, "\n").replace(/(?![\n\t])[\p{Cc}\p{Cs}]/gu, "\ufffd");

const PATHS = { accept: "M3.5 8.5l3 3 6-7", reject: "M4 4l8 8M12 4l-8 8" };

/** An icon: `accept` or `reject`. */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  picture.setAttribute("viewBox", "0 0 16 16");
  picture.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", PATHS[name]);
  picture.append(path);
  return picture;
}

const whole = new Intl.NumberFormat("en");
export const counted = (number) => whole.format(number);
export const plural = (number, one, many = `${one}s`) => `${counted(number)} ${number === 1 ? one : many}`;
export const percent = (part) => `${(100 * part).toFixed(part > 0 && part < 0.0995 ? 1 : 0)} %`;
export const signed = (weight) => `${weight < 0 ? "−" : "+"}${Math.abs(weight).toFixed(4)}`;
export const score = (value, calibrated) => (calibrated ? percent(value) : value.toFixed(4).replace("-", "−"));

/** Number of code points, which the service counts as characters. */
export function characters(text) {
  let pairs = 0;
  for (let at = 0; at < text.length - 1; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit >= 0xd800 && unit < 0xdc00) {
      const next = text.charCodeAt(at + 1);
      if (next >= 0xdc00 && next < 0xe000) {
        pairs += 1;
        at += 1;
      }
    }
  }
  return text.length - pairs;
}

/** The first words of a text, on one line. */
export function beginning(text, most = 90) {
  const line = Array.from(text.slice(0, 4 * most).replace(/\s+/g, " ").trim());
  return line.length > most ? `${line.slice(0, most - 1).join("")}…` : line.join("");
}
