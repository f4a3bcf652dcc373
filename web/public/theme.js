// Before anything is painted, and a file of its own: the page's policy lets no script stand within it.
const chosen = localStorage.getItem("toolcrib-theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
