// Tokens: a response whose pieces are coloured by one value of each token; arrows walk through them.
import { h, number } from "./dom.js";

const LEAST = Math.log(1e-3);
const heat = (value) => `heat${Math.round(Math.min(1, value / LEAST) * 9)}`;
const sided = (value, most) => (most ? `${value < 0 ? "down" : "up"}${Math.round((Math.abs(value) / most) * 5)}` : "up0");

const KINDS = {
  log_prob: ["log-prob of the sampler", "darker: less likely", (value) => heat(value)],
  difference: ["trainer less sampler, log-prob", "blue: the trainer gives it less; orange: more", sided],
  advantage: ["advantage", "blue: less often from now on; orange: more often", sided],
  mask: ["loss mask", "grey: not trained on", (value) => (value ? "" : "masked")],
  version: ["weight version", "a colour each version", null],
  teacher_log_prob: ["log-prob of the teacher", "darker: less likely", (value) => heat(value)],
  trainer_log_prob: ["log-prob of the trainer", "darker: less likely", (value) => heat(value)],
};

function classes(kind, values) {
  if (kind === "version") {
    const versions = [...new Set(values)];
    return values.map((value) => `version${versions.indexOf(value) % 8}`);
  }
  const most = values.reduce((so, value) => Math.max(so, Math.abs(value)), 0);
  return values.map((value) => KINDS[kind][2](value, most));
}

export function tokensView(tokens, kind, choose) {
  const kinds = Object.keys(KINDS).filter((each) => tokens[each]);
  const shown = kinds.includes(kind) ? kind : kinds[0];
  const detail = h("p", { class: "detail", "aria-live": "polite" }, "Click a token, or go through them with the arrow keys.");
  const select = h("select", { id: "colour", onchange: () => choose(select.value) },
    kinds.map((each) => h("option", { value: each, selected: each === shown }, KINDS[each][0])));
  const text = h("pre", { class: "tokens", tabindex: 0, "aria-label": "Response, token by token" });
  const colours = shown ? classes(shown, tokens[shown]) : [];
  const places = [];
  let place = 0;
  for (const [piece, count] of tokens.pieces) {
    const values = colours.slice(place, place + count);
    text.append(h("span", { class: `token ${values.find((each) => each) ?? ""}`, title: describe(tokens, place, count) }, piece));
    places.push([place, count]);
    place += count;
  }
  let at = -1;
  const pick = (next) => {
    if (next < 0 || next >= places.length) return;
    text.children[at]?.classList.remove("picked");
    at = next;
    text.children[at].classList.add("picked");
    text.children[at].scrollIntoView({ block: "nearest" });
    detail.textContent = describe(tokens, ...places[at]);
  };
  text.addEventListener("click", (event) => event.target.classList.contains("token") && pick([...text.children].indexOf(event.target)));
  text.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    pick(at + step);
  });
  const legend = shown ? h("span", { class: "note" }, KINDS[shown][1]) : null;
  return [h("p", {}, h("label", {}, "Colour by ", select), " ", legend), text, detail];
}

function describe(tokens, place, count) {
  const lines = [];
  for (let at = place; at < place + count; at++) {
    const known = Object.keys(KINDS).filter((kind) => tokens[kind]);
    const values = known.map((kind) => `${KINDS[kind][0]} ${typeof tokens[kind][at] === "number" ? number(tokens[kind][at]) : tokens[kind][at]}`);
    lines.push([`token ${at}, id ${tokens.id[at]}`, ...values].join("; "));
  }
  return lines.join("\n");
}
