import type { Gateway } from './gateway.ts'
import type { Settings } from './settings.ts'

/** A few plain lines for whoever has just started the gateway: what it made, and what to do next. */
export async function nextSteps(settings: Settings, gateway: Gateway): Promise<string> {
  const lines = [
    ...gateway.made.map((thing) => `made ${thing}`),
    `listening on ${gateway.url}`,
    ...(gateway.adminUrl === gateway.url ? [] : [`administration on ${gateway.adminUrl}`]),
    ...((await gateway.hasAdminSecret())
      ? []
      : [
          'no operator secret is set: in another terminal, make admin-secret (until then the admin API refuses everyone),',
          `or from elsewhere, once: POST ${gateway.adminUrl}/v1/admin/setup with setup_code ${gateway.setupCode} and new_secret`,
        ]),
    ...keyless(gateway),
    `next, in another terminal: make agent NAME=my-agent CAPS=llm.chat, which writes agents/my-agent and prints a curl line`,
    `data directory: ${settings.dataDir} (back it up; it holds the CA and the audit ledger)`,
  ]
  return `${lines.map((line) => `sallyport: ${line}`).join('\n')}\n`
}

function keyless(gateway: Gateway): string[] {
  const without = gateway
    .configuration()
    .llm.providers.filter(({ api_key: key, auth }) => key === '' && auth !== 'passthrough')
  if (without.length === 0) return []
  const names = without.map(({ name }) => name).join(', ')
  return [`no key for ${names}: set it in the environment (see plugins/config/50-llm.yaml) and start again`]
}
