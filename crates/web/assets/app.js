// The page: views, the login, and the state of the daemon that all views share.

import { Problem, get, post, setToken, takeToken } from "/api.js";
import { field, h, show } from "/dom.js";
import { connections } from "/views/connections.js";
import { drops } from "/views/drops.js";
import { explain } from "/views/explain.js";
import { history } from "/views/history.js";
import { overview } from "/views/overview.js";
import { policy } from "/views/policy.js";
import { rules } from "/views/rules.js";

const VIEWS = { overview, rules, connections, drops, explain, policy, history };
const TITLES = { overview: "Overview", rules: "Rules", connections: "Connections", drops: "Drops", explain: "Explain", policy: "Policy", history: "History" };

/** Milliseconds between two looks at the daemon, while the page is visible. */
const INTERVAL = 1000;

/** The same for changes that wait. */
const WATCH = 2000;

const element = (id) => document.getElementById(id);

/** What views get: the server, and calls to show what went wrong and whether the daemon answers. */
const page = {
  readOnly: false,
  /** Shows a problem above the view; none takes it away. */
  problem(problem) {
    const box = element("problem");
    box.hidden = !problem;
    box.textContent = problem ? problem.message : "";
    if (problem instanceof Problem && problem.status === 401) login();
  },
  /** Shows the change that waits for its confirmation; none takes the banner away. */
  waiting(change) {
    const box = element("waiting");
    box.hidden = !change;
    if (!change) return;
    const left = change.seconds < 120 ? `${change.seconds} s` : `${Math.round(change.seconds / 60)} min`;
    const button = (label, path, body, kind) => h("button", { type: "button", class: kind, onclick: () => end(path, body) }, label);
    show(box,
      h("span", null, `Version ${change.version} waits for its confirmation: in ${left}, version ${change.before} is in force again.`),
      !page.readOnly && button("Confirm", `/api/v1/policy/confirm?version=${change.version}`, undefined, "primary"),
      !page.readOnly && button("Take it back", "/api/v1/history/rollback", { version: change.before, unconfirmed: change.version }, "danger"));
  },
  status(text, kind) {
    element("status").textContent = text;
    element("status").className = kind;
  },
};

let view = null;
let timer = null;
let looked = 0;

/** Ends the wait of a change. */
async function end(path, body) {
  try {
    await post(path, body);
    page.problem(null);
    page.waiting(null);
    // A view shows what is in force now; a text that is being edited stays.
    if (view?.refresh) tick();
  } catch (problem) {
    page.problem(problem);
  }
}

/** Looks for a change that waits, also where a view shows something else. */
async function watch() {
  const number = ++looked;
  try {
    if (!document.hidden && view) {
      const state = await get("/api/v1/state");
      if (number === looked) page.waiting(state.unconfirmed);
    }
  } catch {
    // The view tells it.
  }
  if (number === looked) setTimeout(watch, WATCH);
}

async function tick() {
  clearTimeout(timer);
  const current = view;
  if (!document.hidden && current?.refresh) {
    try {
      await current.refresh();
      if (current === view) {
        page.status("connected", "good");
        if (current.failed) page.problem(null);
        current.failed = false;
      }
    } catch (problem) {
      if (current === view) {
        current.failed = true;
        page.status("no answer", "bad");
        page.problem(problem);
      }
    }
  }
  if (current === view) timer = setTimeout(tick, current?.interval ?? INTERVAL);
}

function open() {
  const name = location.hash.replace(/^#\/?/, "").split("?")[0] || "overview";
  const make = VIEWS[name] ?? overview;
  document.title = `${TITLES[name] ?? "mmb"} – mmb`;
  for (const link of element("nav").children) {
    if (link.hash === `#/${name}`) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "center" });
    } else {
      link.removeAttribute("aria-current");
    }
  }
  page.problem(null);
  const main = element("main");
  show(main);
  view = make(main, page) ?? {};
  tick();
}

function login() {
  clearTimeout(timer);
  view = null;
  page.status("token needed", "bad");
  const token = h("input", { type: "password", autocomplete: "off", spellcheck: "false", required: true });
  const enter = (event) => {
    event.preventDefault();
    setToken(token.value.trim());
    start();
  };
  show(element("main"),
    h("form", { class: "panel login", onsubmit: enter },
      h("h1", null, "Token"),
      h("p", null, "This server needs the token that ", h("code", null, "mmb web"), " printed when it was started, or the first line of the file of ", h("code", null, "--token-file"), "."),
      field("Token", token),
      h("div", { class: "tools" }, h("button", { class: "primary", type: "submit" }, "Open"))));
  token.focus();
}

async function start() {
  page.problem(null);
  try {
    const server = await get("/api/v1/server");
    page.readOnly = server.read_only;
    element("version").textContent = server.version;
    element("read-only").hidden = !server.read_only;
  } catch (problem) {
    page.problem(problem);
    if (!(problem instanceof Problem) || problem.status !== 401) page.status("no answer", "bad");
    return;
  }
  open();
  watch();
}

takeToken();
show(element("nav"), Object.keys(VIEWS).map((name) => h("a", { href: `#/${name}` }, TITLES[name])));
window.addEventListener("hashchange", () => {
  if (location.hash.includes("token=")) {
    takeToken();
    start();
  } else if (view) {
    open();
  }
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && view) tick();
});
start();
