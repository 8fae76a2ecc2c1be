// What every page is made with. Text goes into text nodes, never into markup: a model wrote it.

/** An element. Properties that begin with "on" are listeners, the others attributes; null and false leave one out. */
export function h(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  put(made, ...children);
  return made;
}

/** Appends what is there; null is nothing. */
export function put(to, ...children) {
  to.append(...children.flat().filter((child) => child !== null && child !== undefined).map(plain));
}

const plain = (child) => (child instanceof Node ? child : String(child));

/** Whether the page is a file that has its data in it. Then addresses are behind a #. */
export const isFile = document.getElementById("held") !== null;
let source = fetched;

/** JSON of this server, or of the file; what it says of a problem is raised. */
export const get = async (path, query = {}) => source(path, query);

export function answerFrom(made) {
  source = made;
}

async function fetched(path, query) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) if (each !== null && each !== undefined) parameters.append(name, each);
  }
  const answer = await fetch(`/api/${path}?${parameters}`);
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

/** The address of a page; what is empty is left out. */
export function address(path, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return (isFile ? "#" : "") + (kept.length ? `${path}?${new URLSearchParams(kept)}` : path);
}

/** The page that is shown: path and query. */
export function here() {
  const { pathname, searchParams } = new URL(isFile ? location.hash.slice(1) || "/" : location.href, "http://here");
  return { path: pathname, query: Object.fromEntries(searchParams) };
}

export const number = (value, digits = 4) => (value === null || value === undefined ? "none" : Number(value.toPrecision(digits)).toString());

/** A table; each row is a list of cells, or of elements. */
export function table(caption, heads, rows) {
  return h("div", { class: "scroll" },
    h("table", {}, caption ? h("caption", {}, caption) : null,
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))))));
}

export const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c564b"];
