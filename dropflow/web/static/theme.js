// Dark or light colours as chosen, before the page is drawn; without a choice, as the system wants it.
(() => {
  const KEY = "dropflow-theme";
  const root = document.documentElement;

  function read() {
    try {
      return localStorage.getItem(KEY) ?? "";
    } catch {
      return ""; // storage is forbidden
    }
  }

  function use(theme) {
    if (theme === "dark" || theme === "light") root.dataset.theme = theme;
    else delete root.dataset.theme;
  }

  window.dropflowTheme = {
    get: () => root.dataset.theme ?? "",
    set(theme) {
      use(theme);
      try {
        if (theme) localStorage.setItem(KEY, theme);
        else localStorage.removeItem(KEY);
      } catch {
        // It lasts as long as the page.
      }
      document.dispatchEvent(new Event("theme"));
    },
  };
  use(read());
  addEventListener("storage", (event) => event.key === KEY && use(event.newValue ?? ""));
})();
