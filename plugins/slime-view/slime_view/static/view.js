// Which page is shown, and what all of them share: links between pages without loading, and the state of the runs.
import { address, get, h, here, isFile } from "./dom.js";
import { comparePage } from "./compare.js";
import { curvesPage } from "./curves.js";
import { groupPage } from "./group.js";
import { samplePage } from "./sample.js";
import { samplesPage } from "./samples.js";

const PAGES = { "/": curvesPage, "/samples": samplesPage, "/sample": samplePage, "/group": groupPage, "/compare": comparePage };
const NAMES = { "/": "Curves", "/samples": "Samples", "/compare": "Compare" };
const LOOK_MS = 2000;
const main = document.getElementById("main");
const problem = document.getElementById("problem");
let page = null;
let runs = [];

function go(to) {
  history.pushState(null, "", to);
  show(true);
}

function say(text) {
  problem.textContent = text;
  problem.hidden = !text;
}

function links() {
  const { path: now, query: { run } } = here();
  const shown = Object.entries(NAMES).filter(([path]) => path !== "/compare" || runs.length > 1);
  document.querySelector("nav").replaceChildren(...shown.map(([path, name]) =>
    h("a", { href: address(path, path === "/samples" ? { run } : {}), "aria-current": now === path ? "page" : null }, name)));
}

async function show(moves = false) {
  links();
  page?.leave?.();
  main.replaceChildren();
  const { path, query } = here();
  try {
    say("");
    page = await PAGES[path](main, query, { go, runs, replace: (to) => history.replaceState(null, "", to) });
    const head = main.querySelector("h1");
    document.title = `${head?.textContent ?? "runs"} · slime view`;
    if (moves) (head ?? main).focus();
  } catch (error) {
    say(error.message);
  }
}

async function look() {
  try {
    runs = await get("runs");
    const problems = runs.flatMap((run) => (run.problem ? [`${run.name}: ${run.problem}`] : []));
    say(problems.join("\n"));
    document.getElementById("runs").replaceChildren(...runs.map((run) =>
      h("span", { class: "run", title: run.folder }, `${run.name}: `,
        run.rollout === null ? "no metrics yet" : `rollout ${run.rollout}`, `, ${run.samples} samples`,
        run.waiting ? `, ${run.waiting} files to read` : "")));
    await page?.look?.(runs);
  } catch (error) {
    say(error instanceof TypeError ? "slime view does not answer: start it again, and reload this page" : error.message);
  }
  if (!isFile) setTimeout(look, LOOK_MS);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='/'], a[href^='#/']");
  if (!link || link.target || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});
addEventListener("popstate", () => show()); // and after a # was typed
runs = await get("runs").catch((error) => (say(error.message), []));
await show();
look();
