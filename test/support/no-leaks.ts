/** Node only prints this warning. Thrown, it fails the run of the file that has the leak. */
function refuse(warning: Error): void {
  if (warning.name === "MaxListenersExceededWarning") throw warning;
}

// Files share a process, and this runs before each of them.
if (!process.listeners("warning").some((listener) => listener.name === refuse.name)) process.on("warning", refuse);
