import { command } from '../command.ts'

const HELP = `usage: sallyport enroll mint   NAME --gateway URL --ca FILE [options]
       sallyport enroll byoca  NAME --gateway URL --ca FILE --cert FILE --key FILE [options]
       sallyport enroll spiffe NAME --gateway URL --ca FILE --svid FILE --key FILE [--bundle FILE] [options]

Enrolls an agent over the admin API and writes its identity directory, with a new DPoP key registered. \`mint\` has the
gateway make the certificate; \`byoca\` takes one of an organisation's own CA, \`spiffe\` an SVID.

  --gateway URL        e.g. https://gateway.example:9443
  --ca FILE            what the gateway is trusted by (PEM): its org-ca.crt
  --caps CAP,CAP       capabilities; none are held by default
  --display-name TEXT
  --out DIR            where the identity goes (default: agents/NAME); must be empty
  --secret-file FILE   the operator secret; without it SALLYPORT_ADMIN_SECRET, and else a line of standard input
`

await command(HELP, async (args) => {
  const { enrollVerb } = await import('./enroll-verb.ts')
  await enrollVerb(args)
})
