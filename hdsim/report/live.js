// The page of a replay that is under way: asks the server for the state every second until the replay has ended.
"use strict";
(() => {
  const get = (id) => document.getElementById(id);
  const tell = (text) => { get("status").textContent = text; };
  const link = async () => {
    // The server ends with the replay, so the page keeps the report.
    const address = URL.createObjectURL(await (await fetch("report")).blob());
    get("status").append(" ", Object.assign(document.createElement("a"), { href: address, textContent: "report" }));
  };
  const poll = async () => {
    let state;
    try {
      state = await (await fetch("state")).json();
    } catch {
      tell("the server has ended");
      return;
    }
    [document.title, get("title").textContent, get("tiles").innerHTML] = [`${state.status}: ${state.title}`, state.title, state.tiles];
    tell(state.status);
    window.dispatchEvent(new CustomEvent("charts", { detail: state.charts }));
    if (!state.ended) setTimeout(poll, 1000);
    else if (state.report) await link();
    document.documentElement.dataset.status = state.status;
  };
  const begin = () => document.documentElement.dataset.ready === "true" ? poll() : setTimeout(begin, 50);
  document.addEventListener("DOMContentLoaded", begin);
})();
