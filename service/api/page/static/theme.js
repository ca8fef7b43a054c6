// Light, dark or as the system says; applied before anything is drawn, and kept for the next visit.
(() => {
  const CHOICES = ["auto", "light", "dark"];
  const KEY = "inferlane-theme";
  const kept = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null;
    }
  };
  let choice = CHOICES.includes(kept()) ? kept() : "auto";

  const apply = () => {
    if (choice === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    dispatchEvent(new Event("themechange"));
  };
  apply();

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const label = () => {
      button.textContent = `Theme: ${choice}`;
    };
    button.hidden = false;
    label();
    button.addEventListener("click", () => {
      choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
      try {
        localStorage.setItem(KEY, choice);
      } catch {
        /* then it lasts as long as the page */
      }
      label();
      apply();
    });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
})();
