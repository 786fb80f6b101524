/** Whatever ends what was begun in it: a test, or a run of the soak. */
export interface Scope {
  readonly teardown: (end: () => unknown) => void
}

/** A scope of its own. `close` ends what was begun last first, whatever the others come to. */
export function openScope(): Scope & { readonly close: () => Promise<void> } {
  const ends: (() => unknown)[] = []
  return {
    teardown: (end) => void ends.push(end),
    close: async () => {
      for (const end of ends.splice(0).reverse()) await end()
    },
  }
}
