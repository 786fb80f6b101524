import { hash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { connect } from 'node:tls'
import { type Browser, type BrowserContext, type BrowserContextOptions, chromium } from 'playwright-core'
import type { Test } from 'tap'
import type { TestGateway } from '../gateway.ts'
import { fileOf } from '../in-turn/file-test.ts'

/** The distribution's own. */
const CHROMIUM = '/usr/bin/chromium'

/** For what a page is to show. ms. */
const PATIENCE_MS = 20_000

/** Why a test that needs a browser is left out; false where there is one. */
export const skipWithoutChromium = existsSync(CHROMIUM) ? false : 'no Chromium'

/** A browser for each key that the gateways of this process show. */
const browsers = new Map<string, Promise<Browser>>()

/**
 * Opens a browser that believes the gateway's certificate, as a machine does that knows its root. It serves all tests of a file; what
 * is opened in it ends with the test.
 */
export async function openChromium(
  t: Test,
  gateway: Pick<TestGateway, 'url' | 'ca'>,
): Promise<(options?: BrowserContextOptions) => Promise<BrowserContext>> {
  const key = await keyOf(gateway)
  const launched = browsers.get(key) ?? launch(key)
  if (!browsers.has(key)) {
    browsers.set(key, launched)
    fileOf(t).teardown(async () => {
      browsers.delete(key)
      await (await launched).close()
    })
  }
  const browser = await launched
  return async (options = {}) => {
    const context = await browser.newContext(options)
    t.teardown(() => context.close())
    context.setDefaultTimeout(PATIENCE_MS)
    return context
  }
}

const launch = (key: string): Promise<Browser> =>
  chromium.launch({
    executablePath: CHROMIUM,
    args: [`--ignore-certificate-errors-spki-list=${key}`, '--no-proxy-server'],
  })

/** The digest of the server's public key, which stands for its root: no root can be given to a browser by a flag. */
function keyOf({ url, ca }: Pick<TestGateway, 'url' | 'ca'>): Promise<string> {
  const { hostname, port } = new URL(url)
  return new Promise((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port), servername: hostname, ca }, () => {
      const key = socket.getPeerX509Certificate()?.publicKey.export({ type: 'spki', format: 'der' })
      socket.destroy()
      if (key) resolve(hash('sha256', key, 'base64'))
      else reject(new Error('the gateway shows no certificate'))
    })
    socket.once('error', reject)
  })
}
