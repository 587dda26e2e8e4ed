/** Node only prints this warning. Thrown, it fails the run of the file that has the leak. */
process.on("warning", (warning) => {
  if (warning.name === "MaxListenersExceededWarning") throw warning;
});
