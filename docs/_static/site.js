/* Roles, names and keyboard access that the theme leaves out. */
document.addEventListener("DOMContentLoaded", () => {
  const all = (selector, change) => document.querySelectorAll(selector).forEach(change);
  all("[role=heading]:not([aria-level])", (each) => each.setAttribute("aria-level", "2"));
  all(".sidebar-drawer", (each) => each.setAttribute("aria-label", "Pages"));
  all(".toc-drawer", (each) => each.setAttribute("aria-label", "On this page"));
  all(".sig dl", (each) => { // parameters of a signature, one on a line: no list of terms
    each.outerHTML = [...each.children].map((one) => `<div class="param">${one.innerHTML}</div>`).join("");
  });
  all(".math-wrapper[id]", (each) => each.querySelector(`#${each.id}`) && each.removeAttribute("id"));
  all("pre, .table-wrapper, .cell_output, .math-wrapper", (each) => {
    if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
  });
});
