// Takes a file that is dropped anywhere on the page, and shows its name.

const form = document.getElementById("submit");

if (form) {
  const input = form.elements.json_data;
  const text = form.querySelector(".drop span");
  const shown = text.textContent;
  const show = () => {
    text.textContent = input.files.length ? input.files[0].name : shown;
  };
  input.addEventListener("change", show);
  for (const kind of ["dragover", "drop"]) {
    document.addEventListener(kind, (event) => {
      if (![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      form.classList.toggle("over", kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files.length) {
        input.files = event.dataTransfer.files;
        show();
      }
    });
  }
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) form.classList.remove("over");
  });
}
