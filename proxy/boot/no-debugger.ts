// Imported before anything else: it takes effect from then on.

// Node opens its debugger to every user of the machine on this signal, unless somebody listens to it. `make
// start` has Node ignore it from the first instruction on; this is for every other way to start.
process.on('SIGUSR1', () => {})
