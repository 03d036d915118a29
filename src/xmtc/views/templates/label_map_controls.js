// ---- parts of the page

function part(tag, words, look) {
  const made = document.createElement(tag);
  if (words !== undefined) made.textContent = words;
  if (look) made.className = look;
  return made;
}
function named(tag, label, look) {  // a name in its own element, for either writing direction
  const made = part(tag, names[label], look);
  made.dir = "auto";
  return made;
}
function swatch(region) {
  const made = part("span", undefined, "swatch");
  made.style.background = `var(--region-${region})`;
  return made;
}
function goTo(label, note) {
  const button = part("button");
  button.type = "button";
  button.append(swatch(regionOf[label]), named("span", label, "name"), part("span", note, "note"));
  button.addEventListener("click", () => choose(label, true));
  return inItem(button);
}
function inItem(button) {
  const item = part("li");
  item.append(button);
  return item;
}
function choose(label, flying) {
  chosen = label;
  hideTip();
  redraw();
  const about = byId("about");
  about.hidden = label < 0;
  byId("hint").hidden = label >= 0;
  if (label < 0) return;
  byId("about-name").textContent = names[label];
  const facts = [keyOf(label) === names[label] ? "" : `Key ${keyOf(label)}`, told(label)];
  byId("about-facts").textContent = facts.filter(Boolean).join(" · ");
  const close = labelsNear(label);
  byId("about-near").replaceChildren(...close.map(([other, cosine]) => goTo(other, cosine.toFixed(2))));
  byId("about-head").textContent = close.length
    ? "Nearest labels and their cosine similarity" : "The model has no vector for this label";
  const others = close.map(([other]) => names[other]).join(", ");
  byId("said").textContent = `${names[label]}. ${facts[1]}. Nearest: ${others || "none"}`;
  byId("rest").scrollTop = 0;
  if (flying) fly(closeUp(label));
}
let listed = FIRST_LISTED;
function listView() {
  const shown = inView().filter(label => only < 0 || regionOf[label] === only);
  byId("view-count").textContent = `${number(shown.length)} of ${several(total, "label")}`;
  byId("view").replaceChildren(...shown.slice(0, listed).map(label => goTo(label, countOf(label))));
  byId("more").hidden = shown.length <= listed;
}
function listAnew() {
  listed = FIRST_LISTED;
  listView();
}
byId("more").addEventListener("click", () => {
  const first = listed;
  listed += 100;
  listView();
  byId("view").children[first]?.querySelector("button").focus();
});
function listRegions() {
  const sizes = new Array(8).fill(0);
  for (const region of regionOf) sizes[region]++;
  const buttons = [];
  for (let region = 0; region < 8; region++) {
    if (!sizes[region]) continue;
    const first = [];
    for (let i = 0; i < total && first.length < 3; i++) if (regionOf[i] === region) first.push(names[i]);
    const button = part("button");
    button.type = "button";
    button.setAttribute("aria-pressed", "false");
    const words = region === 7 ? "labels without a vector" : first.join(", ");
    const name = part("span", words, "name");
    name.dir = "auto";
    button.append(swatch(region), name, part("span", number(sizes[region]), "note"));
    button.addEventListener("click", () => {
      only = only === region ? -1 : region;
      for (const each of buttons) each.setAttribute("aria-pressed", String(each === button && only >= 0));
      fly(only < 0 ? whole : around([...all()].filter(label => regionOf[label] === region)));
    });
    buttons.push(button);
  }
  byId("regions").replaceChildren(...buttons.map(inItem));
}
function listSizes() {
  if (!documents) return;
  const steps = [...new Set([1, Math.round(Math.sqrt(most)), most])].filter(count => count <= most);
  byId("sizes").replaceChildren(...steps.map(count => {
    const item = part("li"), dot = part("span", undefined, "dot");
    dot.style.width = dot.style.height = `${2 * radiusOf(count)}px`;
    item.append(dot, part("span", several(count, "document")));
    return item;
  }));
}

// ---- hovering over a label

const tip = byId("tip");
function hideTip() { tip.hidden = true; hovered = -1; }
function labelAt(across, down, reach) {
  let best = -1, least = reach;
  const growth = grown();
  for (let i = 0; i < total; i++) {
    const away = Math.hypot(acrossOf(i) - across, downOf(i) - down) - radius[i] * growth;
    if (away < least) { least = away; best = i; }
  }
  return best;
}
function showTip(label) {
  if (label < 0) { if (hovered >= 0) { hideTip(); redraw(); } return; }
  hovered = label;
  const list = part("ul");
  list.append(...labelsNear(label).map(([other, cosine]) => {
    const item = part("li");
    item.append(named("span", other, "name"), part("span", cosine.toFixed(2), "note"));
    return item;
  }));
  const key = keyOf(label) === names[label] ? [] : [part("p", `Key ${keyOf(label)}`)];
  const close = list.children.length ? [part("p", "Nearest labels", "faint"), list] : [];
  tip.replaceChildren(named("strong", label), ...key, ...(documents ? [part("p", told(label))] : []), ...close);
  tip.hidden = false;
  const across = acrossOf(label), down = downOf(label);
  const left = across + 16 + tip.offsetWidth < wide ? across + 16 : across - 16 - tip.offsetWidth;
  tip.style.left = `${Math.max(4, Math.min(left, wide - tip.offsetWidth - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(down + 12, high - tip.offsetHeight - 4))}px`;
  canvas.style.cursor = "pointer";
  redraw();
}

const pointers = new Map();
let moved = 0;
const spot = event => {
  const box = canvas.getBoundingClientRect();
  return {across: event.clientX - box.left, down: event.clientY - box.top};
};
canvas.addEventListener("pointerdown", event => {
  if (event.button) return;
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, spot(event));
  moved = pointers.size > 1 ? 99 : 0;
});
canvas.addEventListener("pointermove", event => {
  const now = spot(event), before = pointers.get(event.pointerId);
  if (!before) {
    const label = event.pointerType === "touch" ? -1 : labelAt(now.across, now.down, 8);
    canvas.style.cursor = "";
    if (label !== hovered) showTip(label);
    else if (label >= 0) canvas.style.cursor = "pointer";
    return;
  }
  moved += Math.hypot(now.across - before.across, now.down - before.down);
  const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
  pointers.set(event.pointerId, now);
  if (moved < 5) return;
  hideTip();
  if (!other) return pan(before.across - now.across, before.down - now.down);
  const span = place => Math.max(10, Math.hypot(place.across - other.across, place.down - other.down));
  const middle = place => [(place.across + other.across) / 2, (place.down + other.down) / 2];
  const [oldMiddle, newMiddle] = [middle(before), middle(now)];
  zoom(span(now) / span(before), ...oldMiddle);
  pan(oldMiddle[0] - newMiddle[0], oldMiddle[1] - newMiddle[1]);
});
canvas.addEventListener("pointerup", event => {
  if (!pointers.delete(event.pointerId) || moved >= 5) return;
  const touch = event.pointerType === "touch", place = spot(event);
  const label = labelAt(place.across, place.down, touch ? 20 : 8);
  choose(label, false);
  if (touch) showTip(label);
});
canvas.addEventListener("pointercancel", event => pointers.delete(event.pointerId));
canvas.addEventListener("pointerleave", () => { if (!pointers.size) showTip(-1); });
canvas.addEventListener("wheel", event => {
  event.preventDefault();
  hideTip();
  const place = spot(event), lines = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
  const turned = Math.max(-240, Math.min(240, event.deltaY * lines * (event.ctrlKey ? 5 : 1)));
  zoom(2 ** (-turned / 300), place.across, place.down);
}, {passive: false});
canvas.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const across = wide * .15, down = high * .15;
  const ways = {
    ArrowLeft: () => pan(-across, 0), ArrowRight: () => pan(across, 0),
    ArrowUp: () => pan(0, -down), ArrowDown: () => pan(0, down),
    "+": () => zoom(1.5), "=": () => zoom(1.5),
    "-": () => zoom(1 / 1.5), "−": () => zoom(1 / 1.5), _: () => zoom(1 / 1.5),
    "0": () => fly(whole), Home: () => fly(whole), Escape: () => choose(-1),
    Enter: () => choose(labelAt(wide / 2, high / 2, Infinity), false),
  };
  if (!Object.hasOwn(ways, event.key)) return;
  event.preventDefault();
  hideTip();
  ways[event.key]();
});
byId("closer").addEventListener("click", () => zoom(1.6));
byId("farther").addEventListener("click", () => zoom(1 / 1.6));
byId("everything").addEventListener("click", () => fly(whole));

// ---- searching

const field = byId("search"), options = byId("suggestions");
const folded = text => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
let searched = null, offered = [], active = -1;
function matches(words) {
  searched ??= names.map((name, label) => [folded(name), folded(data.keys?.[label] ?? "")]);
  const groups = [[], [], [], []];
  for (let label = 0; label < total; label++) {
    const [name, key] = searched[label];
    const at = name.indexOf(words);
    if (name === words || key === words) groups[0].push(label);
    else if (at === 0 || key.startsWith(words)) groups[1].push(label);
    else if (at > 0) groups[/[\p{L}\p{N}]/u.test(name[at - 1]) ? 3 : 2].push(label);
  }
  return groups.flat();
}
function suggest() {
  const words = folded(field.value.trim()), found = words ? matches(words) : [];
  offered = found.slice(0, SUGGESTIONS);
  active = offered.length ? 0 : -1;
  options.replaceChildren(...offered.map((label, at) => {
    const option = part("li");
    option.id = `option-${at}`;
    option.setAttribute("role", "option");
    option.append(swatch(regionOf[label]), named("span", label, "name"), part("span", countOf(label), "note"));
    option.addEventListener("pointerdown", event => { event.preventDefault(); take(at); });
    return option;
  }));
  const outcome = found.length ? `${several(found.length, "label")} found` : "No label matches";
  byId("found").textContent = words ? outcome : "";
  mark();
}
function mark() {
  options.hidden = !offered.length;
  field.setAttribute("aria-expanded", String(!options.hidden));
  [...options.children].forEach((option, at) => option.setAttribute("aria-selected", String(at === active)));
  if (active < 0) return field.removeAttribute("aria-activedescendant");
  field.setAttribute("aria-activedescendant", `option-${active}`);
  options.children[active].scrollIntoView({block: "nearest"});
}
function close() { offered = []; active = -1; options.replaceChildren(); mark(); }
function take(at) {
  const label = offered[at];
  field.value = names[label];
  close();
  byId("found").textContent = "";
  choose(label, true);
}
field.addEventListener("input", suggest);
field.addEventListener("blur", close);
field.addEventListener("keydown", event => {
  if (event.key === "Escape") {
    if (!offered.length) field.value = byId("found").textContent = "";
    return close();
  }
  if (event.key === "Enter" && !offered.length && field.value.trim()) suggest();
  if (!offered.length) return;
  const step = {ArrowDown: 1, ArrowUp: offered.length - 1}[event.key];
  if (step) { active = (active + step) % offered.length; mark(); }
  else if (event.key === "Enter") take(active);
  else return;
  event.preventDefault();
});
document.addEventListener("keydown", event => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target === field) return;
  event.preventDefault();
  field.focus();
  field.select();
});

// ---- start

function resize() {
  const box = stage.getBoundingClientRect(), before = ratio;
  [wide, high, ratio] = [Math.max(1, box.width), Math.max(1, box.height), devicePixelRatio || 1];
  canvas.width = Math.round(wide * ratio);
  canvas.height = Math.round(high * ratio);
  if (before !== ratio) stamps.clear();
  const tools = byId("tools");
  toolBox = [tools.offsetLeft - 4, tools.offsetTop - 4, wide, high];
  whole = around(all());
  look(touched ? view : whole);
}
dark.addEventListener("change", theme);
theme();
listSizes();
listRegions();
new ResizeObserver(resize).observe(stage);
resize();
listView();
