-- Run once by a superuser, in the database of the gateways, before the first `sallyport migrate up`.
-- Then give both roles a way to log in: a password, a certificate, or an identity of your cloud.

-- Owns everything, and is used by `sallyport migrate up` alone.
create role sallyport_owner login;

-- What gateways connect as: they own nothing, so they can neither drop nor switch off what guards the ledger.
create role sallyport_gateway login;

revoke all on schema public from public;
grant usage, create on schema public to sallyport_owner;
grant usage on schema public to sallyport_gateway;
