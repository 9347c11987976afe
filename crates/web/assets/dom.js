// Elements of the page. Texts become text nodes: nothing that comes from the daemon is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An element with attributes, listeners (`onclick`) and children, which are elements or texts. */
export const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);

/** An element of SVG. */
export const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

/** Replaces what an element has. */
export const show = (element, ...children) => element.replaceChildren(...children.flat(Infinity).filter(Boolean));

/** A text with `code` in backticks and [links](…) of the documents, as elements. */
export function marked(text) {
  const plain = text.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1");
  return plain.split("`").map((part, at) => (at % 2 ? h("code", null, part) : part));
}

/** A field of a form with its label. */
export const field = (label, input, kind = "") => h("label", { class: kind }, label, input);

/** A table. Columns are `[title, class, sortable key]`; cells are texts or elements. */
export function table(columns, rows, { caption, sort, onsort } = {}) {
  const head = columns.map(([title, kind, key]) => {
    const isSorted = sort && key === sort.key;
    const label = key && onsort ? h("button", { type: "button", onclick: () => onsort(key) }, title) : title;
    return h("th", { scope: "col", class: kind, "aria-sort": isSorted && (sort.ascending ? "ascending" : "descending") }, label);
  });
  const body = rows.map((cells) =>
    h("tr", null, cells.map((cell, at) => h("td", { class: columns[at][1], "data-name": columns[at][0] }, cell))));
  return h("div", { class: "scroll" },
    h("table", { class: "stack", "aria-label": caption }, h("thead", null, h("tr", null, head)), h("tbody", null, body)));
}

/** Calls `f` when nothing has happened for a while. */
export function debounced(f, ms) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(f, ms);
  };
}

/** Asks in the dialog of the page; resolves to whether the user agreed. `danger` colours the button. */
export function ask(title, content, label, danger = false) {
  const dialog = document.getElementById("dialog");
  return new Promise((resolve) => {
    const done = (agreed) => {
      dialog.onclose = null;
      dialog.close();
      resolve(agreed);
    };
    dialog.onclose = () => resolve(false);
    show(dialog,
      h("h1", { id: "dialog-title" }, title), content,
      h("div", { class: "tools" },
        h("button", { type: "button", onclick: () => done(false) }, "Cancel"),
        h("button", { type: "button", id: "agree", class: danger ? "danger" : "primary", onclick: () => done(true) }, label)));
    dialog.showModal();
  });
}
