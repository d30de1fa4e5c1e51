// Adds a button to each code block that copies its code: commands without their prompts and output.
"use strict";

function textToCopy(block) {
  const text = block.querySelector("pre").innerText.replace(/\n+$/, "");
  const prompt = [["highlight-console", "$ "], ["highlight-default", ">>> "], ["highlight-pycon", ">>> "], ["doctest", ">>> "]]
    .find(([name]) => block.classList.contains(name))?.[1];
  const lines = text.split("\n");
  if (!prompt || !lines.some((line) => line.startsWith(prompt))) return text;
  const copied = [];
  let continued = false;
  for (const line of lines) {
    if (continued) copied.push(line);
    else if (line.startsWith(prompt)) copied.push(line.slice(prompt.length));
    else if (prompt === ">>> " && line.startsWith("... ")) copied.push(line.slice(4));
    else continue;
    continued = prompt === "$ " && line.endsWith("\\");
  }
  return copied.join("\n");
}

document.addEventListener("DOMContentLoaded", () => {
  // A page that was opened from a file has no clipboard in some browsers.
  if (!navigator.clipboard) return;
  for (const block of document.querySelectorAll("div[class*='highlight-']")) {
    const button = document.createElement("button");
    button.className = "copy-code";
    button.type = "button";
    button.textContent = "copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(textToCopy(block));
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
    block.append(button);
  }
});
