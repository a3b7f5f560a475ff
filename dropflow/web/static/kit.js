// What all pages have: filters that apply as typed, sorted tables, all columns on a phone, keys and commands.

import { watchFilters } from "./filters.js";
import { watchKeys } from "./keyboard.js";
import { watchTables } from "./tables.js";

watchFilters();
watchTables();
watchKeys();
