// The choice of light or dark in any page with a <main>: remembered where the browser has storage, light in print.
"use strict";
(() => {
  const root = document.documentElement, KEY = "hdsim-theme", CHOICES = ["auto", "light", "dark"];
  let chosen = "auto";
  try {
    chosen = CHOICES.find((name) => name === localStorage.getItem(KEY)) ?? "auto";
  } catch {
    // A page without storage begins as the browser prefers.
  }
  /** Plots, which take their colours when they are drawn, listen to the event. */
  const apply = (name) => {
    root.dataset.theme = name;
    window.dispatchEvent(new Event("theme"));
  };
  apply(chosen);
  document.addEventListener("DOMContentLoaded", () => {
    const group = document.createElement("div");
    [group.className, group.role, group.ariaLabel] = ["buttons theme", "group", "Colours"];
    const buttons = CHOICES.map((name) => {
      const button = document.createElement("button");
      [button.type, button.textContent, button.ariaPressed] = ["button", name, String(name === chosen)];
      button.dataset.theme = name;
      button.addEventListener("click", () => {
        chosen = name;
        buttons.forEach((other) => { other.ariaPressed = String(other === button); });
        try {
          localStorage.setItem(KEY, name);
        } catch {
          // The choice holds for this page.
        }
        apply(name);
      });
      return button;
    });
    group.append(...buttons);
    document.querySelector("main").prepend(group);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => apply(chosen));
  window.addEventListener("beforeprint", () => apply("light"));
  window.addEventListener("afterprint", () => apply(chosen));
})();
