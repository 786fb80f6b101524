import { hostname, networkInterfaces } from 'node:os'
import { join } from 'node:path'
import type { Settings } from '../boot/settings.ts'
import { escapeHidden } from '../visible.ts'
import type { Gateway } from './gateway.ts'

/** Returns a verb as it is typed where this is installed: what is compiled comes without make. */
const typed = (make: string, verb: string): string =>
  import.meta.filename.endsWith('.js')
    ? `node ${join(import.meta.dirname, '../../scripts/sallyport.js')} ${verb}`
    : `make ${make}`

/** Returns plain lines for the operator at the start: the things that were made, and the next steps. */
export async function nextSteps(settings: Settings, gateway: Gateway): Promise<string> {
  const lines = [
    ...gateway.made.map((thing) => `made ${thing}`),
    `listening on ${gateway.url}`,
    ...(gateway.adminUrl === gateway.url ? [] : [`administration on ${gateway.adminUrl}`]),
    ...((await gateway.hasAdminSecret())
      ? []
      : [
          `set it up, in a browser: ${gateway.adminUrl}/proxy/setup?code=${gateway.setupCode}`,
          `or in another terminal, ${typed('admin-secret', 'admin-secret')} (no operator secret is set: until then the admin API refuses everyone),`,
          `or from elsewhere, once: POST ${gateway.adminUrl}/v1/admin/setup with setup_code ${gateway.setupCode} and new_secret`,
        ]),
    ...keylessProviderSteps(gateway),
    ...proxySteps(gateway),
    ...selfSteps(gateway),
    `next, in another terminal: ${typed('agent NAME=my-agent CAPS=llm.chat', 'agent my-agent --caps llm.chat')}, which writes agents/my-agent and prints a curl line`,
    `data directory: ${settings.dataDir} (back it up; it holds the CA and the audit ledger)`,
  ]
  return `${lines.map((line) => `sallyport: ${escapeHidden(line)}`).join('\n')}\n`
}

/** Says which providers have no key, and how to give them one. Never a key, nor a part of one. */
function keylessProviderSteps(gateway: Gateway): string[] {
  const { llm, files } = gateway.configuration()
  const file = files.find(({ plugin }) => plugin === 'llm')?.file
  return llm.providers
    .filter(({ api_key: key, auth, credentials }) => key === '' && auth !== 'passthrough' && !credentials)
    .map(({ name, keyVariable: variable = `its api_key in ${file}` }) => {
      return `no key for ${name}: set ${variable} and start again; until then calls of its models are answered 503`
    })
}

/** Says which providers are reached by a proxy, and which are not though the environment names one. */
function proxySteps(gateway: Gateway): string[] {
  const { providers } = gateway.configuration().llm
  const direct = providers.filter(
    ({ proxy, proxyVariable }) => proxy === 'none' && proxyVariable !== undefined,
  )
  const variables = [...new Set(direct.flatMap(({ proxyVariable: variable }) => variable ?? []))].join(
    ' and ',
  )
  const names = direct.map(({ name }) => name).join(', ')
  return [
    ...providers.flatMap(({ name, tunnel, proxyVariable: variable = 'its file' }) =>
      tunnel ? [`calls of ${name} go by the proxy ${tunnel.shown} (of ${variable})`] : [],
    ),
    ...(direct.length > 0
      ? [`${variables} is not used for ${names}: proxy: env, of a provider in its file, makes it so`]
      : []),
  ]
}

/** Says which providers are this gateway itself, by a name or an address of this machine. */
function selfSteps({ url, adminUrl, configuration }: Gateway): string[] {
  const own = [new URL(url), new URL(adminUrl)]
  const addresses = Object.values(networkInterfaces()).flatMap((all) => all?.map(({ address }) => address))
  const names = new Set<string | undefined>([
    'localhost',
    hostname().toLowerCase(),
    ...own.map((one) => one.hostname),
    ...addresses,
  ])
  const isOwn = ({ hostname: host, port, protocol }: URL): boolean =>
    own.some((one) => one.port === port && one.protocol === protocol) &&
    names.has(host.replace(/^\[|\]$/g, ''))
  return configuration()
    .llm.providers.filter(({ base_url: base }) => isOwn(new URL(base)))
    .map(
      ({ name, base_url: base }) =>
        `the provider ${name} is this gateway itself (${base}): its calls fail; say in its file where the provider is`,
    )
}
