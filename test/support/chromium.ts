import { accessSync, constants } from 'node:fs'
import { join } from 'node:path'
import { type Browser, chromium } from 'playwright-core'
import type { Test } from 'tap'

/** Debian's Chromium; null where there is none. */
const program = ((): string | null => {
  const found = (process.env.PATH ?? '').split(':').map((folder) => join(folder, 'chromium'))
  return found.find((path) => isProgram(path)) ?? null
})()

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

/** Why no browser can be driven here; false where one can. */
export const withoutChromium = program === null ? 'skipped: no Chromium' : false

/** Starts Chromium without a window. It is closed with the test. */
export async function startChromium(t: Test): Promise<Browser> {
  const browser = await chromium.launch({
    executablePath: program ?? '',
    // Its sandbox does not run as root, as which tests may.
    args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
  })
  t.teardown(() => browser.close())
  return browser
}
