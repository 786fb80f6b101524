import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { decodeJwt } from 'jose'
import t from 'tap'
import { ENGINE } from '../../support/db/engine.ts'
import { scratch, testGateway } from '../../support/gateway.ts'
import { killingAt } from '../../support/killed-at.ts'
import { testProvider } from '../../support/oidc/provider.ts'
import { operatorsFile } from '../../support/oidc/sign-in.ts'
import { PEOPLE_URL, peopleFetch } from '../../support/people/door.ts'
import { askToken, authorizationUrl, Person } from '../../support/people/person.ts'
import { environment, startProcess } from '../../support/process.ts'

t.setTimeout(300_000)

const REDIRECT = 'https://client.test/callback'
const PEOPLE = {
  plugin: 'people',
  map: { 'alice@example.com': { set: ['llm.chat'], create: true } },
  clients: { registered: [{ id: 'editor', name: 'Editor', redirect_uris: [REDIRECT] }] },
}
const onceIsEnough = ENGINE === 'postgres' && 'it is a SQLite database, which the other run has too'

t.test(
  'killed at any write of a redemption, no token is without its rows',
  { skip: onceIsEnough },
  async (t) => {
    const provider = await testProvider(t)
    await provider.register({ url: 'https://unused.test', ca: '' })
    let struck = 0
    for (let nth = 1; ; nth += 1) {
      const root = await scratch(t)
      const at = join(root, 'kill-at')
      const killing = killingAt(at)
      const made = await environment(root, 'http://127.0.0.1:9')
      writeFileSync(join(root, 'config/65-people.yaml'), JSON.stringify(PEOPLE))
      writeFileSync(join(root, 'config/70-operators.yaml'), operatorsFile(provider.issuer))
      const people = {
        MCP_PROXY_PEOPLE_LISTEN: '127.0.0.1:0',
        MCP_PROXY_PEOPLE_URL: PEOPLE_URL,
        MCP_PROXY_HOSTNAMES: 'localhost,127.0.0.1,people.test',
      }
      const { child, ready, output, ended } = startProcess(
        t,
        { ...made, ...people, ...killing.env },
        killing.args,
      )
      await ready
      const peoplePort = Number(/"people_port":(\d+)/.exec(output())?.[1])
      const ca = readFileSync(join(root, 'data/org-ca.crt'), 'utf8')
      const fetch = peopleFetch(t, { peoplePort, ca })
      const { url, verifier } = authorizationUrl('editor', REDIRECT)
      const back = await new Person({ fetch }, 'alice').allow(url, provider.issuer)
      const code = back.searchParams.get('code') ?? ''
      const fields = { grant_type: 'authorization_code', client_id: 'editor', redirect_uri: REDIRECT }
      writeFileSync(at, String(nth))
      const answer = await askToken({ fetch }, { ...fields, code, code_verifier: verifier }).catch(() => null)
      rmSync(at)
      child.kill('SIGKILL')
      await ended
      const again = await testGateway(t, {
        settings: {
          MCP_PROXY_DATA_DIR: join(root, 'data'),
          MCP_PROXY_DATABASE_URL: made.MCP_PROXY_DATABASE_URL ?? '',
        },
        ownCa: true,
      })
      const rows = (await again.rows()).filter(
        ({ action }) => action === 'grant.issued' || action === 'token.issued',
      )
      t.ok(rows.length === 0 || rows.length === 2, `${nth}: both rows or neither`)
      if (answer) t.match(rows[0]?.detail, { grant: decodeJwt(answer.json.access_token).grant }, `${nth}`)
      await again.close(0)
      if (answer) break
      struck += 1
    }
    t.ok(struck > 0, `struck ${struck} times`)
  },
)
