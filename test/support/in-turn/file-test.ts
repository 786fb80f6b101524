// Not by importing tap: a gateway in a process of its own, which has this file too, must not have it speak to its parent.
import type { Test } from 'tap'

/** The file that a worker (worker.ts) runs now, and the test that stands for it. */
let current: { readonly url: string; readonly test: Test } | null = null

/** Makes a test stand for a file: what the file imports from tap is this test. */
export function standFor(url: string, test: Test): void {
  current = { url, test }
}

/** The test that stands for a file; null for a file that no worker runs now. */
export const testOf = (url: string | undefined): Test | null =>
  current && current.url === url ? current.test : null

/** The outermost test of a test's file: tap's own, or in a worker the one that stands for the file. */
export function fileOf(t: Test): Test {
  let file = t
  while (file !== current?.test && file.parent) file = file.parent as Test
  return file
}
