"use strict";
(() => {
  const root = document.documentElement;
  const remember = (key, value) => { try { localStorage.setItem(key, value); } catch { /* private windows */ } };
  const recall = (key) => { try { return localStorage.getItem(key); } catch { return null; } };
  const themed = recall("lakefeed-theme");
  if (themed) root.dataset.theme = themed;

  // A token that came in the address has become a cookie; it need not stay where shoulders and histories see it.
  const address = new URL(location.href);
  if (address.searchParams.has("token")) {
    address.searchParams.delete("token");
    history.replaceState(null, "", address);
  }

  // Makes what is shown like what was fetched, without touching what is the same: open rows stay open.
  const kept = new Set(["open", "hidden"]);
  function become(shown, fetched) {
    if (shown.nodeType !== fetched.nodeType || shown.nodeName !== fetched.nodeName || shown.id !== fetched.id) {
      shown.replaceWith(fetched);
      return;
    }
    if (shown.nodeType !== Node.ELEMENT_NODE) {
      if (shown.data !== fetched.data) shown.data = fetched.data;
      return;
    }
    for (const { name } of [...shown.attributes]) {
      if (!fetched.hasAttribute(name) && !kept.has(name)) shown.removeAttribute(name);
    }
    for (const { name, value } of fetched.attributes) {
      if (shown.getAttribute(name) !== value && !kept.has(name)) shown.setAttribute(name, value);
    }
    // What has an id keeps it wherever it moves to, and stays open there.
    const known = new Map([...shown.children].filter((one) => one.id).map((one) => [one.id, one]));
    const after = [...fetched.childNodes];
    after.forEach((node, at) => {
      const same = node.id && known.get(node.id);
      if (same && shown.childNodes[at] !== same) shown.insertBefore(same, shown.childNodes[at] ?? null);
      if (shown.childNodes[at]) become(shown.childNodes[at], node); else shown.append(node);
    });
    [...shown.childNodes].slice(after.length).forEach((node) => node.remove());
  }

  function find() {
    const field = document.getElementById("find");
    if (!field) return;
    const wanted = field.value.trim().toLowerCase();
    for (const row of document.querySelectorAll("#tables .table:not(.route)")) {
      row.hidden = wanted !== "" && !row.dataset.name.toLowerCase().includes(wanted);
    }
    // A route is found by its tables, and opens to show them.
    for (const route of document.querySelectorAll("#tables .route")) {
      route.hidden = !route.querySelector(".table:not([hidden])");
      if (wanted !== "" && !route.hidden) route.open = true;
    }
  }

  document.addEventListener("input", (event) => { if (event.target.id === "find") find(); });
  document.addEventListener("toggle", (event) => { if (event.target.open && event.target.closest("#tables, #letters")) look(); }, true);
  document.addEventListener("click", (event) => {
    if (event.target.id !== "theme") return;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    remember("lakefeed-theme", root.dataset.theme);
  });

  async function look() {
    try {
      const opened = [...document.querySelectorAll("#tables .table[open]")].map((row) => ["open", row.dataset.name]);
      for (const reason of document.querySelectorAll("#letters .reason[open]")) opened.push(["open", reason.id]);
      const range = new URL(location.href).searchParams.get("range");
      if (range) opened.push(["range", range]);
      const answer = await fetch("live?" + new URLSearchParams(opened), { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.statusText);
      const fetched = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
      become(document.getElementById("live"), fetched);
      find();
      root.classList.remove("lost");
    } catch {
      root.classList.add("lost");
      const state = document.getElementById("state");
      state.className = "pill down";
      state.textContent = "the run has ended or cannot be reached";
    }
  }

  (async function turn() {
    for (;;) {
      await new Promise((done) => setTimeout(done, 2000));
      if (!document.hidden) await look();
    }
  })();
})();
