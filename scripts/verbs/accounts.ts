import type { z } from 'zod'
import type { listAccountsOf } from '../../proxy/admin/mcp/accounts.ts'
import { expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { subcommandOf, verbGroup } from '../admin/subcommand.ts'
import { JSON_OPTION } from '../command.ts'
import { alignColumns, jsonLines } from '../print.ts'

type AccountList = z.output<typeof listAccountsOf.output>

const list = subcommandOf({
  takes: 'PRINCIPAL',
  about: 'the accounts of a principal at MCP servers, the newest first',
  misuse: 'name one principal: sallyport accounts list acme::user::alice',
  options: JSON_OPTION,
  run: async ({ call, say, args: [principal], values: { json } }) => {
    const path = `/v1/admin/accounts?${new URLSearchParams({ principal }).toString()}`
    const { accounts } = expectStatus<AccountList>(await call('GET', path), 200)
    if (json) return say(...jsonLines(accounts))
    if (accounts.length === 0) return say(`${principal} has no accounts`)
    say(
      ...alignColumns([
        ['ACCOUNT', 'SERVER', 'ISSUER', 'SCOPES', 'SINCE'],
        ...accounts.map(({ account, resource, resource_id: id, issuer, scopes, connected_at: since }) => [
          ...[account, resource ?? id, issuer, scopes.join(' ') || '-', since],
        ]),
      ]),
    )
  },
})

const end = subcommandOf({
  takes: 'ACCOUNT',
  about: 'end an account at once; its tokens are revoked at the issuer',
  misuse: 'name one account: sallyport accounts end ua_…',
  run: async ({ call, say, args: [account] }) => {
    expectStatus(await call('DELETE', `/v1/admin/accounts/${encodeURIComponent(account)}`), 204)
    say(`${account} is ended`)
  },
})

export const verb = verbGroup({
  name: 'accounts',
  about: `Shows and ends the accounts of principals at MCP servers. ${DOOR_NOTES}`,
  verbs: { list, end },
  notes: 'An account is connected in a browser: by its user, or for an agent by an operator.',
})
