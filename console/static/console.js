// Keeps an open page fresh, says when it is not, and shows forms in a dialog. Every page works without it.
"use strict";

const SILENT_MS = 6000;
const stale = document.getElementById("stale");
const dialog = document.getElementById("dialog");
const live = document.body.dataset.live;
let source = null;
let heard = performance.now();
let reason = stale.textContent;
let lost = false;

// What has not changed stays: the focus, what is selected, what is being typed, open details.
function update(from, to) {
  if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName) {
    from.replaceWith(to);
    return;
  }
  if (from.nodeType === Node.TEXT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && name !== "open") from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  updateChildren(from, to);
}

// A row with an id stays the same element when others come and go: nobody clicks a button that has just moved under the pointer.
function updateChildren(from, to) {
  const known = new Map([...from.children].filter((each) => each.id).map((each) => [each.id, each]));
  let at = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const same = wanted.id ? known.get(wanted.id) : at && !at.id ? at : null;
    if (!same) {
      from.insertBefore(wanted, at);
      continue;
    }
    if (same === at) at = at.nextSibling;
    else from.insertBefore(same, at);
    update(same, wanted);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function showSection({ id, html }) {
  const place = document.getElementById(id);
  if (!place) return;
  const fresh = document.createElement(place.nodeName);
  fresh.innerHTML = html;
  updateChildren(place, fresh);
  place.hidden = !html;
}

function showTick(tick) {
  heard = performance.now();
  lost = false;
  reason = tick.stale;
  const time = document.querySelector("#as-of time");
  if (time && tick.at) time.textContent = tick.at;
  showState();
}

function showState() {
  const silent = performance.now() - heard;
  const quiet = lost || silent > SILENT_MS;
  let text = reason ? `What is shown may be old: ${reason}` : "";
  if (quiet) text = `No word from the node for ${Math.round(silent / 1000)} s. What is shown may be old.`;
  if (stale.textContent !== text) stale.textContent = text;
  stale.hidden = !text;
  document.body.classList.toggle("old", Boolean(text));
}

function follow() {
  source = new EventSource(live);
  const on = (kind, act) => source.addEventListener(kind, (event) => act(JSON.parse(event.data)));
  on("section", showSection);
  on("tick", showTick);
  on("gone", ({ text }) => end(text));
  source.onerror = () => {
    lost = true;
    showState();
    if (source && source.readyState === EventSource.CLOSED) explain();
  };
}

function end(text) {
  if (source) source.close();
  source = null;
  clearInterval(watch);
  stale.textContent = text;
  stale.hidden = false;
}

// The node refused the stream, or is away: a stream does not say which.
async function explain() {
  source = null;
  try {
    const answer = await fetch(live);
    if (answer.status === 401) location.reload();
    if (answer.status === 503) {
      end(await answer.text());
      setTimeout(() => location.reload(), 10000);
      return;
    }
    if (answer.body) answer.body.cancel();
  } catch {
    // away: the bar says so
  }
  setTimeout(follow, 2000);
}

async function showForm(address) {
  const answer = await fetch(address).catch(() => null);
  const page = answer && new DOMParser().parseFromString(await answer.text(), "text/html");
  const form = page && page.getElementById("act");
  if (!form) {
    location.assign(address);
    return;
  }
  dialog.replaceChildren(form);
  if (!dialog.open) dialog.showModal();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (link.hasAttribute("data-dialog")) {
    event.preventDefault();
    showForm(link.href);
  } else if (link.hasAttribute("data-close") && dialog.open) {
    event.preventDefault();
    dialog.close();
  }
});

// An owner takes seconds to obey at times.
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  for (const button of event.target.querySelectorAll("button")) {
    button.setAttribute("aria-busy", "true");
    button.disabled = true;
  }
});

// A page that nobody sees keeps no stream.
document.addEventListener("visibilitychange", () => {
  if (!live) return;
  if (document.hidden && source) {
    source.close();
    source = null;
  } else if (!document.hidden && !source) {
    heard = performance.now();
    follow();
  }
});

const watch = live ? setInterval(showState, 1000) : 0;
if (live) follow();
