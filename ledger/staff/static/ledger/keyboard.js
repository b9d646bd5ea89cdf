// What a mouse opens by a click, the keyboard opens too: menus, filters and the sidebar are buttons with a focus, Enter and Space,
// and a state that is said; the focus goes into what opens, and Escape closes it and goes back.

const NATIVE = "a[href], button, input, select, textarea, summary, label";
const FOCUSABLE = "a[href], button:not([disabled]), input:not([type=hidden]):not([disabled]), select, textarea, summary, [role=button]";
const STATE = /^\s*(\w+)\s*=\s*(?:!\s*\1|true)/;
const NAMES = { openUserLinks: "Your menu", sidebarDesktopOpen: "Sidebar", sidebarMobileOpen: "Sidebar" };
const openers = new Map();

function shown() {
  return [...document.querySelectorAll(FOCUSABLE)].filter((each) => each.checkVisibility({ visibilityProperty: true }));
}

function stateOf(opener) {
  return Alpine.$data(opener)[openers.get(opener)];
}

function makeButton(opener, state) {
  openers.set(opener, state);
  opener.setAttribute("role", "button");
  opener.tabIndex = 0;
  if (NAMES[state]) opener.setAttribute("aria-label", NAMES[state]);
  Alpine.effect(() => opener.setAttribute("aria-expanded", String(Boolean(stateOf(opener)))));
}

function openByKey(opener) {
  const before = new Set(shown());
  opener.click();
  Alpine.nextTick(() => requestAnimationFrame(() => {
    if (!stateOf(opener)) return;
    const first = shown().find((each) => !before.has(each));
    if (!first) return;
    opener.opensBefore = first;
    first.focus();
  }));
}

function closeByKey() {
  const open = [...openers.keys()].filter((each) => stateOf(each) && openers.get(each) !== "sidebarDesktopOpen");
  // The sidebar has a second button of its own, which disappears with it.
  const opener = open.find((each) => each.opensBefore) ?? open[0];
  if (!opener) return;
  Alpine.$data(opener)[openers.get(opener)] = false;
  opener.focus();
}

document.addEventListener("alpine:initialized", () => {
  for (const each of document.querySelectorAll("[x-on\\:click]")) {
    const state = each.getAttribute("x-on:click").match(STATE)?.[1];
    if (state && !each.matches(NATIVE)) makeButton(each, state);
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") closeByKey();
  if (!openers.has(event.target) || (event.key !== "Enter" && event.key !== " ")) return;
  event.preventDefault();
  openByKey(event.target);
});
// Django's lists of groups and permissions have a sign with a name that is only for pictures.
addEventListener("load", () => setTimeout(() => {
  for (const each of document.querySelectorAll(".help-tooltip[aria-label]")) each.setAttribute("role", "img");
}));
